"""The writer of a table in Postgres: rows and ledger in one transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evertable.errors import EvertableError, Finding, Refused
from evertable.model import option_values as takes
from evertable.model.capabilities import SinkCapabilities
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import OutputMode, SinkSpec, Table, place_of
from evertable.sinks.postgres import target
from evertable.sinks.postgres.client import About, Client, completed, problem
from evertable.sinks.postgres.columns import Column, columns_of, key_columns, projected, quoted
from evertable.sinks.postgres.ledger import Claim, Ledger
from evertable.sinks.postgres.merge import Merge
from evertable.sinks.postgres.staging import Staging
from evertable.sinks.seam import Held, gone, kept_otherwise, key_text, key_twice
from evertable.sinks.versions import DELETED, with_deletions
from evertable.spark.arrow import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

CAPABILITIES = SinkCapabilities(
    formats=("postgres",),
    modes=("append", "update", "complete"),
    guarantee="exactly once",
    ledger=True,
    options=frozenset({"url", "table", "staging"}),
    values={"staging": takes.one_of("auto", "always", "never")},
    misplaced={
        "dbtable": "the sink's option is `table`",
        "user": "it is a part of `url`, or libpq's PGUSER",
        "password": "it is a part of `url`, or libpq's PGPASSWORD or ~/.pgpass",
    },
    keyed=True,
    adds_columns=True,
)

LARGE = 128 * 1024 * 1024  # bytes of a batch after which the next ones are staged
_BATCH = "_evertable_batch"
_MANY = 10_000  # rows for which a join pays


class PostgresSink:
    """A table in a database."""

    capabilities = CAPABILITIES

    def __init__(self, table: Table, spec: SinkSpec, options: Mapping[str, str], owner: str):
        self._target = Target(table, spec, options)
        self._owner = owner
        self._run = uuid.uuid4().hex
        self._claimed = False

    def open(self, table: Table, query_id: str) -> PostgresSession:
        client = self._target.connect(f"evertable {self._owner}")
        try:
            name, _ = target.find(client, self._target.name, self._target.about)
            client.commit()
            ledger = Ledger(client, self._target.about, name, query_id)
            claim = ledger.claim(self._owner, self._run, again=self._claimed)
            self._claimed = True
            url = completed(self._target.url, f"evertable {self._owner}")
            staging = Staging(client, url, self._target.about, name, query_id, claim.epoch)
            staging.clear()
        except BaseException:
            client.close()
            raise
        return PostgresSession(client, table, self._target, name, ledger, claim, staging)


class Target:
    """Where a sink's options point."""

    def __init__(self, table: Table, spec: SinkSpec, options: Mapping[str, str]) -> None:
        given = {option.lower(): value for option, value in options.items()}
        self.url = given.get("url", "postgresql://")
        self.name = given.get("table", table.name)
        self.staging = given.get("staging", "auto").lower()
        self.about = About(table.name, place_of(spec, "url") or table.location, self.url)

    def connect(self, name: str = "evertable") -> Client:
        return Client(self.url, self.about, name)


class PostgresSession:
    """A claim on one table."""

    def __init__(
        self,
        client: Client,
        table: Table,
        where: Target,
        name: target.Name,
        ledger: Ledger,
        claim: Claim,
        staging: Staging,
    ) -> None:
        self._client = client
        self._table = table
        self._where = where
        self._name = name
        self._ledger = ledger
        self._claim = claim
        self._staging = staging
        self._stages = where.staging == "always" or (where.staging == "auto" and claim.staged)
        self.last = claim.last
        self._columns: list[Column] = []
        self._merge = Merge(name, target.There(), (), (), None, False)
        self._directly = False

    # -- before the first batch --------------------------------------------------------------

    def prepare(self, schema: StructType, mode: OutputMode, keys: Sequence[str]) -> None:
        self._columns = columns_of(schema)
        key = key_columns(self._columns, keys) if mode == "update" else []
        with self._client.transaction():
            there = target.look(self._client, self._name)
            if not there.columns and self.last is not None:
                raise Refused(self._gone())
            if there.columns:
                about, before = self._where.about, self._claim.kept_as or (None, None)
                wrong = kept_otherwise(
                    about.table, about.place, before, mode, key_text(key, self._table)
                ) or target.misfit(self._table, about, self._name, there, self._columns, key, mode)
                if wrong:
                    raise Refused(wrong)
            made = not there.columns
            for step in target.steps(self._name, there, self._columns, key, mode):
                self._client.run(step)
            there = target.look(self._client, self._name)
            deletes = self._table.delete_when is not None
            self._merge = Merge(
                self._name, there, self._columns, key, self._table.order_by, deletes
            )
            if self._merge.remembers:
                for step in self._merge.make_removals():
                    self._client.run(step)
            self._directly = mode != "update" and target.copies_directly(there, self._columns)
            self._make_batch_table()
            self._ledger.keep_as(mode, key_text(key, self._table), made=made)

    def _make_batch_table(self) -> None:
        """Where rows are until they are merged, seen by this session only."""
        body = [f"{quoted(c.name)} {c.sent}" for c in self._columns]
        body += [f"{quoted(DELETED)} boolean"] if self._merge.deletes else []
        self._client.run(f"DROP TABLE IF EXISTS pg_temp.{_BATCH}")
        self._client.run(f"CREATE TEMP TABLE {_BATCH} ({', '.join(body)}) ON COMMIT DELETE ROWS")

    # -- a batch -----------------------------------------------------------------------------

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        frame = projected(with_deletions(rows, self._table), self._columns)
        with self._told():
            if self._stages:
                count = self._write_staged(frame, entry, mode, written)
            else:
                count = self._write_directly(frame, entry, mode, written)
        self.last = entry
        return count

    def _write_directly(
        self, frame: DataFrame, entry: LedgerEntry, mode: OutputMode, written: Callable[[], None]
    ) -> int:
        try:
            batch = collected(frame)
        except Exception as e:
            if self._where.staging == "auto" and "maxResultSize" in str(e):
                self._ledger.will_stage()
                raise Refused(self._too_large()) from e
            raise
        large = self._where.staging == "auto" and batch.nbytes > LARGE
        with self._client.transaction():
            if self._directly:
                self._clear(mode, batch.num_rows)
                if batch.num_rows:
                    self._client.ingest(self._name.table, batch, schema=self._name.schema)
            else:
                if batch.num_rows:
                    self._client.ingest(_BATCH, batch)
                self._move(f"pg_temp.{_BATCH}", batch.num_rows, mode)
            written()
            self._ledger.seal(entry, staged=large)
        self._stages = large
        return int(batch.num_rows)

    def _write_staged(
        self, frame: DataFrame, entry: LedgerEntry, mode: OutputMode, written: Callable[[], None]
    ) -> int:
        deletes = self._merge.deletes
        with self._client.transaction():
            try:
                table, count, size = self._staging.stage(
                    frame, entry.batch, self._columns, deletes=deletes
                )
            except Exception as e:
                if "adbc_driver_manager" in str(e):  # what a task met, told by its worker
                    raise Refused(problem(e, self._where.about)) from e
                raise
            self._move(table, count, mode)
            self._staging.drop(table)
            written()
            stages = self._where.staging == "always" or size > LARGE // 4
            self._ledger.seal(entry, staged=stages)
        self._stages = stages
        return count

    def _clear(self, mode: OutputMode, count: int) -> None:
        """A grouping by nothing has one row, and its newest version is all of the table."""
        if mode == "complete" or (mode == "update" and not self._merge.key and count):
            self._client.run(f"DELETE FROM {self._name.sql}")

    def _move(self, batch: str, count: int, mode: OutputMode) -> None:
        """Rows of a table of their own into the target."""
        merge = self._merge
        self._clear(mode, count)
        if not count:
            return
        if mode != "update" or not merge.key:
            self._client.run(merge.append(batch))
        elif not merge.deletes:
            joins = count > _MANY and merge.order_by is None
            joins = joins and not self._client.rows(merge.null_keys(batch))
            self._client.run(merge.large(batch) if joins else merge.upsert(batch))
        else:
            if merge.order_by is None and self._client.rows(merge.twice(batch)):
                raise Refused(key_twice(self._table.name, self._where.about.place, merge.key))
            if count > _MANY:
                self._client.run(f"ANALYZE {batch}")
            nulls = bool(self._client.rows(merge.null_keys(batch)))
            for step in merge.upsert_and_remove(batch, nulls=nulls):
                self._client.run(step)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What only we can know of an error: that the target was there, and what its key is."""
        try:
            yield
        except EvertableError as e:
            first = e.findings[0]
            if first.code == "TARGET_GONE":
                raise Refused(self._gone()) from e
            key = self._merge.key
            if first.code == "VALUE_REFUSED" and f"Key ({', '.join(key)})=" in first.detail.replace(
                '"', ""
            ):
                raise Refused(key_twice(self._table.name, self._where.about.place, key)) from e
            raise

    def _gone(self) -> Finding:
        return gone(self._table.name, self._where.about.place, f"target {self._name}")

    def _too_large(self) -> Finding:
        return Finding(
            "BATCH_TO_STAGE",
            f'a batch of table "{self._table.name}" is larger than the driver takes at once',
            self._where.about.place,
            detail="spark.driver.maxResultSize; from now on tasks write to a staging table",
            hint="the batch is written again",
        )

    def maintain(self) -> Iterable[Finding]:
        return ()

    def close(self) -> None:
        self._client.close()


# -- without Spark: for `check`, `sink` and `drop` ---------------------------------------------


def examine(
    table: Table,
    spec: SinkSpec,
    options: Mapping[str, str],
    schema: StructType,
    keys: Sequence[str],
) -> Finding | None:
    """Whether the database is there, and the table in it, if there is one, takes the rows."""
    where = Target(table, spec, options)
    columns = columns_of(schema)
    key = key_columns(columns, keys) if table.output_mode == "update" else []
    try:
        client = where.connect()
    except Refused as e:
        return e.findings[0]
    try:
        name, there = target.find(client, where.name, where.about)
        if not there.columns:
            return None
        return target.misfit(table, where.about, name, there, columns, key, table.output_mode)
    except Refused as e:
        return e.findings[0]
    finally:
        client.close()


class Owned:
    """What a database says of a table's target, and how it is given up."""

    def __init__(self, table: Table, spec: SinkSpec, options: Mapping[str, str]) -> None:
        self._where = Target(table, spec, options)

    def held(self) -> Held | None:
        with self._ledger() as (_, _, ledger):
            found = ledger.held()
            return found[0] if found else None

    def release(self, *, rows: bool = False) -> str:
        """Forget whose the rows are; with `rows`, drop the table as well, if we made it."""
        with self._ledger() as (client, name, ledger):
            found = ledger.held()
            made = found is not None and found[1]
            if found:
                left = found[0].query_id
                Staging(client, self._where.url, self._where.about, name, left, 0).clear()
            with client.transaction():
                ledger.forget()
                removals = Merge(name, target.There(), (), (), None, True).removals
                client.run(f"DROP TABLE IF EXISTS {removals}")
                if rows and made:
                    client.run(f"DROP TABLE IF EXISTS {name.sql}")
            return str(name)

    def made_by_us(self) -> bool:
        with self._ledger() as (_, _, ledger):
            found = ledger.held()
            return found is not None and found[1]

    @contextmanager
    def _ledger(self) -> Iterator[tuple[Client, target.Name, Ledger]]:
        client = self._where.connect()
        try:
            name, _ = target.find(client, self._where.name, self._where.about)
            yield client, name, Ledger(client, self._where.about, name, "")
        finally:
            client.close()
