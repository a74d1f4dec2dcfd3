"""The writer of an embedded table: SQLite in WAL mode, one file a table.

Readers in other processes never block it and never see half a batch.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from evertable.errors import Finding, Refused
from evertable.model.capabilities import SinkCapabilities
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import OutputMode, Table
from evertable.sinks.embedded.columns import (
    Column,
    columns_of,
    key_columns,
    quoted,
    register_collation,
    sqlite_values,
)
from evertable.sinks.embedded.ledger import Ledger, connect, transaction
from evertable.sinks.embedded.upkeep import Aging, Upkeep
from evertable.sinks.embedded.upsert import Upsert
from evertable.sinks.seam import gone, kept_otherwise, key_text
from evertable.sinks.versions import DELETED, time_of, with_deletions
from evertable.spark.arrow import collected

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

CAPABILITIES = SinkCapabilities(
    formats=("embedded",),
    modes=("append", "update", "complete"),
    guarantee="exactly once",
    ledger=True,
    keyed=True,
    retains=True,
    adds_columns=True,
)


class EmbeddedSink:
    """Tables kept in SQLite files under the pipeline's storage."""

    capabilities = CAPABILITIES

    def __init__(
        self, file: str, seen: Callable[[pa.Table], None] = lambda batch: None, *, owner: str = ""
    ) -> None:
        self._file = file
        self._owner = owner
        self._seen = seen  # gets the rows of each batch as they come, before they are kept

    def open(self, table: Table, query_id: str) -> EmbeddedSession:
        connection = connect(self._file)
        try:
            register_collation(connection)
            ledger = Ledger(connection, table.name, table.location, query_id, self._owner)
            last = ledger.claim()
        except BaseException:
            connection.close()
            raise
        return EmbeddedSession(self._file, connection, table, ledger, last, self._seen)


class EmbeddedSession:
    """A claim on one file."""

    def __init__(
        self,
        file: str,
        connection: sqlite3.Connection,
        table: Table,
        ledger: Ledger,
        last: LedgerEntry | None,
        seen: Callable[[pa.Table], None],
    ) -> None:
        self._file = file
        self._seen = seen
        self._inode = os.stat(file).st_ino
        self._connection = connection
        self._table = table
        self._ledger = ledger
        self.last = last
        self._columns: list[Column] = []
        self._upsert = Upsert(connection, table, (), ())
        self._upkeep = Upkeep(connection, file, table, None)

    def prepare(self, schema: StructType, mode: OutputMode, keys: Sequence[str]) -> None:
        self._columns = columns_of(schema)
        key = key_columns(self._columns, keys) if mode == "update" else []
        self._upsert = Upsert(self._connection, self._table, self._columns, key)
        self._upkeep = Upkeep(self._connection, self._file, self._table, self._aging(schema))
        with transaction(self._connection):
            there = self._connection.execute(
                "SELECT name, type FROM pragma_table_info(?)", (self._table.name,)
            ).fetchall()
            if not there and self.last is not None:
                raise Refused(self._gone())
            if there:
                self._fit(there)
            else:
                self._make()
                if key:
                    self._upsert.make()
            key_of_rows = key_text(keys, self._table)
            wrong = kept_otherwise(
                self._table.name, self._table.location, self._ledger.kept_as(), mode, key_of_rows
            )
            if wrong:
                raise Refused(wrong)
            self._ledger.keep_as(mode, key_of_rows)
        self._upkeep.make()

    def _aging(self, schema: StructType) -> Aging | None:
        if self._table.retain is None:
            return None
        field = time_of(schema, self._table.retain)
        assert not isinstance(field, str)  # said by the analysis
        return Aging([c for c in self._columns if c.source == field.name][-1], self._table.retain)

    def _make(self) -> None:
        body = ", ".join(c.sql for c in self._columns)
        try:
            self._connection.execute(f"CREATE TABLE {quoted(self._table.name)} ({body})")
        except sqlite3.OperationalError as e:
            raise Refused(
                Finding(
                    "SINK_COLUMNS",
                    f'table "{self._table.name}" cannot be kept: {e}',
                    self._table.location,
                    hint="give each column a name of its own; names differ in more than case",
                )
            ) from e

    def _fit(self, there: list[tuple[str, str]]) -> None:
        """The table that is there has these columns, or gets those that are new.

        Columns that are gone from the query stay, with NULL in the rows from now on.
        """
        wanted = {c.name: c.declared for c in self._columns}
        kept = dict(there)
        new = [c for c in self._columns if c.name not in kept]
        adds = self._table.on_schema_change != "fail"  # the table is ours alone
        other = [n for n, kind in kept.items() if n in wanted and wanted[n] != kind]
        gone = [n for n in kept if n not in wanted]
        if other or ((new or gone) and not adds):
            raise Refused(self._does_not_fit(kept, wanted))
        for column in new:
            self._connection.execute(
                f"ALTER TABLE {quoted(self._table.name)} ADD COLUMN {column.sql}"
            )

    def _does_not_fit(self, kept: dict[str, str], wanted: dict[str, str]) -> Finding:
        gone = ", ".join(f"{n} {_word(k)}" for n, k in kept.items() if wanted.get(n) != k)
        new = ", ".join(f"{n} {_word(k)}" for n, k in wanted.items() if kept.get(n) != k)
        hint = f"take the edit back, or `evertable drop {self._table.name}` and start over"
        if not gone:
            hint = "without on_schema_change: fail old rows stay, with NULL there; or " + hint
        return Finding(
            "SINK_SCHEMA",
            f'table "{self._table.name}" is kept with other columns than its query now has',
            self._table.location,
            detail="; ".join(
                part
                for part in (f"kept: {gone}" if gone else "", f"now: {new}" if new else "")
                if part
            ),
            hint=hint,
        )

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        batch = collected(with_deletions(rows, self._table))
        self._seen(batch)
        self._still_there()
        values = sqlite_values(batch, self._columns)
        deleted = batch.column(DELETED).to_pylist() if self._table.delete_when else None
        key = key_columns(self._columns, keys) if mode == "update" else []
        try:
            with transaction(self._connection):
                # A grouping by nothing has one row, and its newest version is all of the table.
                if mode == "complete" or (mode == "update" and not key and batch.num_rows):
                    self._connection.execute(f"DELETE FROM {quoted(self._table.name)}")
                if key:
                    self._upsert.replace(values, batch, deleted)
                else:
                    self._upsert.insert(values)
                written()
                self._ledger.seal(entry)
        except sqlite3.OperationalError as e:
            if "no such table" in str(e):
                raise Refused(self._gone()) from e
            raise
        self.last = entry
        return int(batch.num_rows)

    def _still_there(self) -> None:
        """SQLite would go on writing into a file that was removed, for nobody to read."""
        try:
            there = os.stat(self._file).st_ino == self._inode
        except FileNotFoundError:
            there = False
        if not there:
            raise Refused(self._gone())

    def _gone(self) -> Finding:
        return gone(self._table.name, self._table.location, f"the file or the rows in {self._file}")

    def maintain(self) -> Iterable[Finding]:
        return self._upkeep.run()

    def close(self) -> None:
        self._connection.close()


def set_aside(file: str) -> str | None:
    """Keep the rows under another name, so that a new run does not write beside them."""
    if not os.path.exists(file):
        return None
    connection = sqlite3.connect(file, isolation_level=None)
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    connection.close()
    if busy:  # batches that are in the log only would not come along
        raise Refused(
            Finding(
                "SINK_LOCKED", f'somebody reads "{file}"', hint="end that reader, and try again"
            )
        )
    stem, extension = os.path.splitext(file)
    number = 1
    while os.path.exists(kept := f"{stem}.kept-{number}{extension}"):
        number += 1
    os.rename(file, kept)
    return kept


def columns_problem(table: str, schema: StructType) -> str | None:
    """Why SQLite would not keep rows of this schema; asked before anything starts."""
    connection = sqlite3.connect(":memory:")
    try:
        register_collation(connection)
        body = ", ".join(c.sql for c in columns_of(schema))
        connection.execute(f"CREATE TABLE {quoted(table)} ({body})")
    except (sqlite3.Error, ValueError) as e:
        return str(e)
    finally:
        connection.close()
    return None


def _word(declared: str) -> str:
    """TIMESTAMP_TEXT is kept as text, and is a timestamp."""
    return declared.replace("_TEXT", "").removesuffix("_INT")
