"""Where tables under test keep their rows: embedded, whatever their own sinks are."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import OutputMode, SinkSpec, Table
from evertable.sinks import embedded
from evertable.sinks.embedded.columns import columns_of, sqlite_values
from evertable.sinks.embedded.sink import EmbeddedSession
from evertable.sinks.registry import capabilities

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_NESTED = "JSON_TEXT"


def spec_of(table: Table) -> SinkSpec:
    """The sink that the analysis sees: one that wants a key only where the table's own does."""
    keyed = bool(table.key) or any(capabilities(spec).keyed for spec in table.sinks)
    if table.output_mode != "update" or keyed:
        return SinkSpec()
    return SinkSpec(format="python", function=_nothing)


def _nothing(rows: DataFrame, batch: int) -> None:
    """Never called: a `KeptSink` stands in its place."""


class KeptSink:
    """An embedded table. Updates without a key are kept one below the other, as they come."""

    capabilities = embedded.CAPABILITIES

    def __init__(self, file: str, seen: Callable[[pa.Table], None], *, keyed: bool) -> None:
        self._sink = embedded.EmbeddedSink(file, seen)
        self._keyed = keyed

    def open(self, table: Table, query_id: str) -> EmbeddedSession | _Log:
        session = self._sink.open(table, query_id)
        return session if self._keyed else _Log(session)


class _Log:
    """A session that appends whatever it gets."""

    def __init__(self, session: EmbeddedSession) -> None:
        self._session = session

    @property
    def last(self) -> LedgerEntry | None:
        return self._session.last

    @last.setter
    def last(self, entry: LedgerEntry | None) -> None:
        self._session.last = entry

    def prepare(self, schema: StructType, mode: OutputMode, keys: Sequence[str]) -> None:
        self._session.prepare(schema, "append", ())

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        return self._session.write(rows, entry, "append", (), written)

    def maintain(self) -> tuple[()]:
        return ()

    def close(self) -> None:
        self._session.close()


def flat(batch: pa.Table, schema: StructType) -> list[dict[str, Any]]:
    """Rows as Spark emits them, with the columns that they are kept in."""
    columns = columns_of(schema)
    nested = {c.source: sqlite_values(batch, [c])[0] for c in columns if c.kind == _NESTED}
    found = []
    for number, row in enumerate(batch.to_pylist()):
        one = {}
        for column in columns:
            if column.source in nested:
                one[column.name] = nested[column.source][number]
            elif column.field is None:
                one[column.name] = row[column.source]
            else:
                one[column.name] = (row[column.source] or {}).get(column.field)
        found.append(one)
    return read_back(found, schema)


def read_back(rows: list[dict[str, Any]], schema: StructType) -> list[dict[str, Any]]:
    """Structs, arrays and maps, which are kept as JSON, as what they are."""
    nested = [c.name for c in columns_of(schema) if c.kind == _NESTED]
    for row in rows:
        for name in nested:
            if isinstance(row[name], str):  # as it goes in; read again it is one already
                row[name] = json.loads(row[name])
    return rows
