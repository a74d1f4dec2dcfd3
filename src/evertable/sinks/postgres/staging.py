"""Large batches: tasks write to a table of their own, the driver moves what the good ones wrote.

A batch is computed by one action. A task returns its rows where they are few; else it copies them
into an UNLOGGED table, each row with the number of the task's attempt, and returns how many they
are. Rows of attempts that failed are never moved, and a count that differs stops everything: such
a table is empty after a crash of the server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evertable.errors import Finding, Refused
from evertable.sinks.postgres.client import About, Client
from evertable.sinks.postgres.columns import Column, quoted
from evertable.sinks.postgres.target import Name
from evertable.sinks.versions import DELETED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

INLINE = 1024 * 1024  # bytes that one task may return
_ATTEMPT = "_evertable_attempt"
_ANSWER = "attempt long, staged long, rows long, bytes long, inline binary"


class Staging:
    """The staging tables of one claim."""

    def __init__(
        self, client: Client, url: str, about: About, target: Name, query_id: str, epoch: int
    ) -> None:
        self._client = client
        self._url = url
        self._about = about
        self._schema = target.schema
        one = hashlib.sha256(f"{query_id} {target}".encode()).hexdigest()[:16]
        self._prefix = f"_evertable_staged_{one}_"
        self._epoch = epoch

    def clear(self) -> None:
        """Remove what runs before this one left behind."""
        left = self._client.rows(
            "SELECT tablename::text FROM pg_tables WHERE schemaname = $1 "
            "AND starts_with(tablename, $2)",
            self._schema,
            self._prefix,
        )
        for (table,) in left:
            self._client.run(f"DROP TABLE {Name(self._schema, table).sql}")
        self._client.commit()

    def stage(
        self, rows: DataFrame, batch: int, columns: Sequence[Column], *, deletes: bool
    ) -> tuple[str, int, int]:
        """Compute the rows: the table they are in, how many, their bytes. A transaction is open."""
        name = Name(self._schema, f"{self._prefix}{self._epoch}_{batch}")
        body = [f"{quoted(c.name)} {c.sent}" for c in columns]
        body += [f"{quoted(DELETED)} boolean"] if deletes else []
        self._client.run(f"DROP TABLE IF EXISTS {name.sql}")
        self._client.run(f"CREATE UNLOGGED TABLE {name.sql} ({', '.join(body)}, {_ATTEMPT} bigint)")
        self._client.commit()
        work = _task(self._url, name.schema, name.table, INLINE)
        answers = rows.mapInArrow(work, _ANSWER).toArrow().to_pylist()
        for answer in answers:
            if answer["inline"] is not None:
                self._client.ingest(name.table, _read(answer["inline"]), schema=name.schema)
        expected = sum(a["rows"] for a in answers)
        self._only(name, [a["attempt"] for a in answers], expected)
        return name.sql, expected, sum(a["bytes"] for a in answers)

    def drop(self, table: str) -> None:
        self._client.run(f"DROP TABLE {table}")

    def _only(self, name: Name, attempts: list[int], expected: int) -> None:
        """Leave the rows of these attempts, and see that they are all there.

        An attempt that Spark gave up on may still be writing: from here on it cannot.
        """
        self._client.run("SET LOCAL lock_timeout = '30s'")
        self._client.run(f"LOCK TABLE {name.sql} IN SHARE ROW EXCLUSIVE MODE")
        self._client.run("SET LOCAL lock_timeout = 0")
        ((count,),) = self._client.rows(f"SELECT count(*) FROM {name.sql}")
        if count != expected:
            good = ", ".join(map(str, attempts)) or "NULL"
            self._client.run(f"DELETE FROM {name.sql} WHERE {_ATTEMPT} NOT IN ({good})")
            ((count,),) = self._client.rows(f"SELECT count(*) FROM {name.sql}")
        if count != expected:
            raise Refused(
                Finding(
                    "STAGING_LOST",
                    f"{self._about.what} lost rows on their way: {count} of {expected} are staged",
                    self._about.place,
                    detail="the server crashed in between; nothing of the batch was kept",
                    hint="the batch is written again",
                )
            )


def _task(url: str, schema: str, table: str, limit: int) -> Callable[..., Iterator[Any]]:
    """What each task does; a closure, which workers get whole: they need not have Evertable."""
    attempt_column = _ATTEMPT

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        rows = size = 0

        def marked() -> Iterator[pa.RecordBatch]:
            nonlocal rows, size
            for batch in batches:
                if batch.num_rows:
                    rows += batch.num_rows
                    size += batch.nbytes
                    yield pa.RecordBatch.from_arrays(
                        [*batch.columns, pa.array([attempt] * batch.num_rows, pa.int64())],
                        names=[*batch.schema.names, attempt_column],
                    )

        source = marked()
        few = []
        for batch in source:
            few.append(batch)
            if size > limit:
                break
        if not few:
            return
        kind = few[0].schema
        inline, staged = None, 0
        if size <= limit:
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, kind) as writer:
                for batch in few:
                    writer.write_batch(batch)
            inline = out.getvalue().to_pybytes()
        else:
            from adbc_driver_postgresql import dbapi

            def all_of_them() -> Iterator[pa.RecordBatch]:
                while few:
                    yield few.pop(0)
                yield from source

            reader = pa.RecordBatchReader.from_batches(kind, all_of_them())
            with dbapi.connect(url) as connection, connection.cursor() as cursor:
                cursor.adbc_ingest(table, reader, mode="append", db_schema_name=schema)
                connection.commit()
            staged = rows
        yield pa.RecordBatch.from_pylist(
            [{"attempt": attempt, "staged": staged, "rows": rows, "bytes": size, "inline": inline}],
            schema=pa.schema(
                [(n, pa.int64()) for n in ("attempt", "staged", "rows", "bytes")]
                + [("inline", pa.binary())]
            ),
        )

    return stage


def _read(inline: bytes) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(inline).read_all()
