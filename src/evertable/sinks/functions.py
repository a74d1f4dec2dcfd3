"""Sinks that are code: the user's function per batch, the user's row writer, and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evertable.errors import Refused
from evertable.location import Location
from evertable.model import option_values as takes
from evertable.model.capabilities import SinkCapabilities
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import OutputMode, SinkSpec, Table
from evertable.sinks.seam import WithoutLedger
from evertable.user_code import failure, load_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PYTHON = SinkCapabilities(
    formats=("python",),
    modes=("append", "update", "complete"),
    guarantee="at least once",
    options=frozenset({"call", "class"}),
    one_of=("call", "class"),
    any_option="*",  # those of a class of the user's; the analysis looks at them
    takes_key=True,
    real_time=True,
)
CONSOLE = SinkCapabilities(
    formats=("console",),
    modes=("append", "update", "complete"),
    guarantee="nothing kept",
    options=frozenset({"numRows", "truncate"}),
    values={"numrows": takes.whole_number, "truncate": takes.boolean},
    continuous=True,
    real_time=True,
)

Show = Callable[[str, int, "Any"], None]  # (table, batch, Arrow table)


class FunctionSink:
    """Calls `function(batch DataFrame, batch id)`."""

    capabilities = PYTHON

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def open(self, table: Table, query_id: str) -> FunctionSession:
        return FunctionSession(self._function, table)


class FunctionSession(WithoutLedger):
    def __init__(self, function: Callable[..., Any], table: Table) -> None:
        self._function = function
        self._table = table

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        try:
            self._function(rows, entry.batch)
        except Exception as e:
            from pyspark.errors.exceptions.captured import CapturedException

            if isinstance(e, CapturedException):
                raise
            message = f'your sink function of table "{self._table.name}" failed'
            raise Refused(failure(e, message, code_of(e)).at(self._table.location)) from e
        written()
        return None


def code_of(error: Exception) -> str:
    """A store of the user's that cannot be reached may be there again soon; anything else not."""
    passes = isinstance(error, ConnectionError | TimeoutError)
    return "SINK_UNREACHABLE" if passes else "USER_CODE_FAILED"


class RowWriterSink:
    """Hands each row to `process(row)` of an object of the user's, in the tasks that have it.

    `open(partition, batch)`, which may answer False to leave the partition out, and `close(error)`
    are called around the rows of a partition, where the object has them.
    """

    capabilities = PYTHON

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def open(self, table: Table, query_id: str) -> RowWriterSession:
        return RowWriterSession(self._writer)


class RowWriterSession(WithoutLedger):
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        rows.foreachPartition(_each_partition(self._writer, entry.batch))
        written()
        return None


def _each_partition(writer: Any, batch: int) -> Callable[[Iterable[Any]], None]:
    """A closure, which workers get whole: they need not have Evertable."""

    def write(rows: Iterable[Any]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        wanted, error = True, None
        try:
            if hasattr(writer, "open"):
                wanted = writer.open(partition, batch) is not False
            if wanted:
                for row in rows:
                    writer.process(row)
        except Exception as e:
            error = e
            raise
        finally:
            if hasattr(writer, "close"):
                writer.close(error)

    return write


def loaded(spec: SinkSpec, root: str, place: Location | None) -> Any:
    """What a Python sink names: a function, a row writer, or a class that is a data source."""
    if spec.function is not None:
        return spec.function
    by_lower = {option.lower(): value for option, value in spec.options.items()}
    name = by_lower.get("call") or by_lower["class"]
    return load_function(name, root, spec.location or place)


def options_of(options: Mapping[str, str]) -> dict[str, str]:
    """What the user's class is made with: the options that are not ours."""
    return {o: v for o, v in options.items() if o.lower() not in ("call", "class")}


def is_sink(target: Any) -> bool:
    """Whether it is a connector: something that is opened, and is no writer of rows."""
    return hasattr(target, "open") and not hasattr(target, "process")


def row_writer(target: Any) -> Any | None:
    """The object that writes rows, made of its class where that is given; None for a function."""
    if not hasattr(target, "process"):
        return None
    return target() if isinstance(target, type) else target


class ConsoleSink:
    """Shows each batch; the terminal decides how."""

    capabilities = CONSOLE

    def __init__(self, show: Show) -> None:
        self._show = show

    def open(self, table: Table, query_id: str) -> ConsoleSession:
        return ConsoleSession(self._show, table)


class ConsoleSession(WithoutLedger):
    def __init__(self, show: Show, table: Table) -> None:
        self._show = show
        self._table = table

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        batch = rows.toArrow()
        self._show(self._table.name, entry.batch, batch)
        written()
        return int(batch.num_rows)
