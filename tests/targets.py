"""Where rows of a table may go, each with a reader that is not the writer, and ways to harm it.

A new sink is one class here, and a line in TARGETS.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

from evertable.model.storage import Storage
from evertable.project import open_pipeline

OWN_SINK = '''
import os, sqlite3
from evertable import LedgerEntry

class Store:
    """A sink of somebody's own: SQLite, rows and ledger in one transaction."""
    guarantee = "exactly once"

    def __init__(self, file):
        self.file = file

    def open(self, table, query_id):
        return Session(self.file, table.name, query_id)

class Session:
    def __init__(self, file, name, query_id):
        self.connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        run = self.connection.execute
        run("PRAGMA journal_mode=WAL")
        run("CREATE TABLE IF NOT EXISTS ledger (query_id, batch, digest)")
        run("CREATE TABLE IF NOT EXISTS rows (value TEXT)")
        row = run("SELECT * FROM ledger").fetchone()
        self.last = LedgerEntry(*row) if row else None

    def write(self, rows, entry, mode, keys, written):
        lines = [(line,) for line in rows.toJSON().collect()]
        run = self.connection.execute
        run("BEGIN IMMEDIATE")
        try:
            if mode == "complete":
                run("DELETE FROM rows")
            self.connection.executemany("INSERT INTO rows VALUES (?)", lines)
            written()
            run("DELETE FROM ledger")
            run("INSERT INTO ledger VALUES (?, ?, ?)", (entry.query_id, entry.batch, entry.digest))
            run("COMMIT")
        except BaseException:
            run("ROLLBACK")
            raise
        self.last = entry
        return len(lines)

    def close(self):
        self.connection.close()
'''
FUNCTION = """
import sqlite3

def keep(rows, batch):
    lines = [(batch, line) for line in rows.toJSON().collect()]
    connection = sqlite3.connect("function.sqlite")
    with connection:
        connection.execute("CREATE TABLE IF NOT EXISTS rows (batch, value)")
        connection.executemany("INSERT INTO rows VALUES (?, ?)", lines)
    connection.close()
"""


class Target:
    """One place for rows of table `t`."""

    modes = ("append", "update", "complete")
    replaces = False  # keeps one row a key
    typed = False  # columns come back as columns
    fences = True
    names_owner = True  # its ledger says which pipeline and table it is of
    keeps_ledger_inside = True  # so that rows and ledger are rolled back together

    def __init__(self, kit, request):
        self.kit = kit
        self.request = request
        self.name = f"t{uuid.uuid4().hex[:12]}"
        self.begin()

    def begin(self):
        pass

    def sink(self) -> str:
        """In YAML."""
        raise NotImplementedError

    def rows(self) -> list[dict]:
        """Every row, read by somebody else."""
        raise NotImplementedError

    def drop(self):
        """Remove the target itself."""
        raise NotImplementedError

    def delete_ledger(self):
        raise NotImplementedError

    def save(self):
        """Something that `restore` can go back to."""
        raise NotImplementedError

    def restore(self, saved):
        raise NotImplementedError

    def storage(self) -> Storage:
        return Storage.of(open_pipeline(str(self.kit.file)))


class OfFile(Target):
    """Rows in one SQLite file."""

    def file(self) -> Path:
        raise NotImplementedError

    def drop(self):
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.file()}{suffix}").unlink(missing_ok=True)

    def save(self):
        self.sql("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.file().read_bytes()

    def restore(self, saved):
        self.drop()
        self.file().write_bytes(saved)

    def sql(self, text):
        with closing(sqlite3.connect(self.file(), isolation_level=None)) as connection:
            return connection.execute(text).fetchall()


class Embedded(OfFile):
    replaces = typed = True

    def sink(self):
        return "embedded"

    def file(self):
        return Path(self.storage().table_file("t"))

    def rows(self):
        from evertable.sinks.embedded.reader import query

        answer = query("SELECT * FROM t", {"t": str(self.file())})
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]

    def delete_ledger(self):
        self.sql("DELETE FROM _evertable_ledger")


class Postgres(Target):
    replaces = typed = True
    options = ""

    def begin(self):
        self.server = self.request.getfixturevalue("postgres")

    def sink(self):
        url, name = self.server.url, self.name
        return f'{{format: postgres, url: "{url}", table: {name}{self.options}}}'

    def sql(self, text, *values):
        import psycopg2

        with closing(psycopg2.connect(self.server.url)) as connection, connection:
            cursor = connection.cursor()
            cursor.execute(text, values or None)
            if cursor.description is None:
                return []
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def rows(self):
        found = self.sql(f'SELECT * FROM "{self.name}"')
        return [
            {k: bytes(v) if isinstance(v, memoryview) else v for k, v in row.items()}
            for row in found
        ]

    def drop(self):
        self.sql(f'DROP TABLE "{self.name}"')

    def delete_ledger(self):
        self.sql("DELETE FROM _evertable_ledger WHERE target = %s", self.name)

    def save(self):
        return self.rows(), self.sql(
            "SELECT batch, digest FROM _evertable_ledger WHERE target = %s", self.name
        )

    def restore(self, saved):
        rows, ledger = saved
        self.sql(f'DELETE FROM "{self.name}"')
        for row in rows:
            marks = ", ".join(["%s"] * len(row))
            self.sql(f'INSERT INTO "{self.name}" VALUES ({marks})', *row.values())
        self.sql(
            "UPDATE _evertable_ledger SET batch = %s, digest = %s WHERE target = %s",
            ledger[0]["batch"], ledger[0]["digest"], self.name,
        )  # fmt: skip


class StagedPostgres(Postgres):
    """The same, with each batch through a staging table."""

    options = ", staging: always"


class Kafka(Target):
    """One transaction a batch; every row is a JSON text."""

    def begin(self):
        self.kafka = self.request.getfixturevalue("kafka")
        self.topic = self.kafka.topic(self.name, 2)

    def sink(self):
        return (
            f"{{format: kafka, delivery: exactly_once, topic: {self.topic}, "
            f'kafka.bootstrap.servers: "{self.kafka.broker.address}"}}'
        )

    def rows(self):
        return [json.loads(m.value()) for m in self.kafka.committed(self.topic)]

    def drop(self):
        self.kafka.delete(self.topic)

    def delete_ledger(self):
        from evertable.sinks import grip
        from evertable.spark.secrets import resolve

        pipeline = open_pipeline(str(self.kit.file))
        table = pipeline.tables[0]
        spec = table.sink("kafka")
        grip.grip(pipeline, table, spec, resolve(spec.options, "", None)).release()


class Files(Target):
    modes = ("append",)
    typed = True
    fences = False  # the checkpoint's lock is what keeps a second writer out

    def sink(self):
        return "{format: parquet, path: out}"

    @property
    def folder(self):
        return self.kit.folder / "out"

    def rows(self):
        if not any((self.folder / "_spark_metadata").glob("[0-9]*")):
            return []
        return self.kit.spark.read.parquet(str(self.folder)).toArrow().to_pylist()

    def drop(self):
        shutil.rmtree(self.folder)

    def delete_ledger(self):
        shutil.rmtree(self.folder / "_spark_metadata")

    def save(self):
        shutil.rmtree(self.kit.folder / "saved", ignore_errors=True)
        return shutil.copytree(self.folder, self.kit.folder / "saved")

    def restore(self, saved):
        self.drop()
        shutil.copytree(saved, self.folder)


class OwnClass(OfFile):
    fences = names_owner = False  # its author did not write that

    def begin(self):
        self.kit.write("store.py", OWN_SINK)

    def sink(self):
        return f'{{format: python, call: "store.py:Store", file: "{self.file()}"}}'

    def file(self):
        return self.kit.folder / "own.sqlite"

    def rows(self):
        if not self.file().exists():
            return []
        return [json.loads(value) for (value,) in self.sql("SELECT value FROM rows")]

    def delete_ledger(self):
        self.sql("DELETE FROM ledger")


class FunctionWithLedger(OfFile):
    keeps_ledger_inside = False

    def begin(self):
        self.kit.write("keep.py", FUNCTION)

    def sink(self):
        return '{format: python, call: "keep.py:keep", ledger: embedded}'

    def file(self):
        return self.kit.folder / "function.sqlite"

    def ledger(self):
        return self.storage().ledger_file("t", 0)

    def rows(self):
        if not self.file().exists():
            return []
        return [json.loads(value) for (value,) in self.sql("SELECT value FROM rows")]

    def delete_ledger(self):
        with closing(sqlite3.connect(self.ledger(), isolation_level=None)) as connection:
            connection.execute("DELETE FROM _evertable_ledger")


TARGETS = [Embedded, Postgres, StagedPostgres, Kafka, Files, OwnClass, FunctionWithLedger]
