"""Sinks that are Spark's own writers, and any format that Spark knows and we do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from evertable.model.capabilities import ASYNC, SinkCapabilities
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import OutputMode, Table
from evertable.sinks.seam import WithoutLedger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ANY_MODE = ("append", "update", "complete")

MEMORY = SinkCapabilities(
    formats=("memory",),
    modes=_ANY_MODE,
    guarantee="nothing kept",
    options=frozenset(ASYNC),
    values={option.lower(): check for option, check in ASYNC.items()},
    durable=False,
    continuous=True,
    alone=True,
)
NOOP = SinkCapabilities(
    formats=("noop",),
    modes=_ANY_MODE,
    guarantee="nothing kept",
    options=frozenset(ASYNC),
    values={option.lower(): check for option, check in ASYNC.items()},
    continuous=True,
)
TABLE = SinkCapabilities(
    formats=("table",),
    modes=("append", "complete"),
    guarantee="not known",
    options=frozenset({"table"}),
    required=("table",),
    partitions=True,
    any_option="table",
)

SINKS = (MEMORY, NOOP, TABLE)


def stranger(format: str) -> SinkCapabilities:
    """What can be said of a format that Spark may know and we do not."""
    return SinkCapabilities(
        formats=(format,),
        modes=_ANY_MODE,
        guarantee="not known",
        partitions=True,
        any_option="*",
    )


class WriterSink:
    """One of several sinks of a table: each batch through Spark's writer for batches."""

    def __init__(
        self,
        capabilities: SinkCapabilities,
        format: str,
        options: Mapping[str, str],
        partition_by: Sequence[str],
    ) -> None:
        self.capabilities = capabilities
        self._format = format
        self._options = options
        self._partition_by = partition_by

    def open(self, table: Table, query_id: str) -> WriterSession:
        return WriterSession(self._format, self._options, self._partition_by)


class WriterSession(WithoutLedger):
    def __init__(
        self, format: str, options: Mapping[str, str], partition_by: Sequence[str]
    ) -> None:
        self._format = format
        self._options = options
        self._partition_by = partition_by

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        options = {o: v for o, v in self._options.items() if o.lower() != "table"}
        writer = rows.write.mode("overwrite" if mode == "complete" else "append").options(**options)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        if self._format == "table":
            name = next(v for o, v in self._options.items() if o.lower() == "table")
            writer.saveAsTable(name)
        elif self._format in ("kafka", "noop"):  # they know no modes but append
            writer.mode("append").format(self._format).save()
        else:
            writer.format(self._format).save()
        written()
        return None
