"""The public face: a pipeline in Python that can be checked, run, and read from."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from evertable.define.builder import F, PipelineBuilder, TableKeys
from evertable.errors import Finding, Refused
from evertable.model.pipeline import Pipeline as Model
from evertable.model.storage import Storage
from evertable.user_code import is_loading

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from evertable.queries import Listeners, QueryHandle
    from evertable.run.events import (
        Batch,
        Ended,
        Event,
        Idle,
        Noticed,
        Refreshed,
        Retrying,
        Started,
    )
    from evertable.run.runner import Runner, Stopped
    from evertable.run.table_run import TableRun


class Pipeline(PipelineBuilder):
    """Streams, statics, views and tables; then `run()` it, or `start()` it in a notebook."""

    _runner: Runner | None = None
    _watcher: threading.Thread | None = None
    _listeners: Listeners | None = None

    @overload
    def table(self, function: F, /) -> F: ...
    @overload
    def table(self, name: str, /) -> TableHandle: ...
    @overload
    def table(self, name: str, /, *, sql: str, **keys: Unpack[TableKeys]) -> None: ...
    @overload
    def table(self, /, **keys: Unpack[TableKeys]) -> Callable[[F], F]: ...
    def table(
        self, name: Any = None, /, *, sql: str | None = None, **keys: Unpack[TableKeys]
    ) -> Any:
        """Decorate a function that makes a table's rows; or give a name and SQL.

        With a name alone: the table itself, to read from.
        """
        if callable(name):  # @pipeline.table without brackets
            self.define_table(name, None, keys)
            return name
        if name is None:

            def decorate(function: F) -> F:
                self.define_table(function, None, keys)
                return function

            return decorate
        if sql is None:
            return TableHandle(self, name)
        return self.define_table(name, sql, keys)

    def checked(self) -> Model:
        """The frozen pipeline, if nothing is wrong with it."""
        from evertable.project import checked

        return checked(*self.defined())

    def run(self, only: Sequence[str] = ()) -> None:
        """Run in the foreground until every table ends, or Ctrl-C. For `python pipeline.py`.

        While `evertable` itself imports the file it does nothing: `check` starts no table.
        """
        if is_loading():
            return
        from evertable.cli.main import report
        from evertable.cli.run import run

        code = report(lambda: run(self.checked(), only, tell=self.tell))
        if code:
            sys.exit(code)

    def start(self, only: Sequence[str] = (), *, spark: SparkSession | None = None) -> Pipeline:
        """Start the tables and return at once; `stop()` ends them at a batch boundary."""
        from evertable.cli.picture import shown_rows
        from evertable.run.runner import Runner

        if self._runner is not None and self.running:
            raise Refused(
                Finding(
                    "ALREADY_RUNNING",
                    f'pipeline "{self.name}" is running',
                    hint="pipeline.stop() first",
                )
            )
        runner = Runner(
            self.checked(),
            only=only,
            spark=spark,
            emit=self.tell,
            show=lambda table, batch, rows: print(*shown_rows(table, batch, rows), sep="\n"),
        )
        runner.start()
        self._runner = runner
        self._watcher = threading.Thread(target=runner.wait, daemon=True)
        self._watcher.start()
        return self

    @property
    def running(self) -> bool:
        """Whether a table of it still runs."""
        return self._watcher is not None and self._watcher.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every table has ended; False if the time was over before. Raises the first
        table's failure."""
        if self._watcher is not None:
            self._watcher.join(timeout)
        self._raise_failure()
        return not self.running

    def stop(self) -> list[Stopped]:
        """End every table after the batch it is in."""
        if self._runner is None:
            return []
        stopped = self._runner.stop()
        if self._watcher is not None:
            self._watcher.join()
        return stopped

    @property
    def queries(self) -> dict[str, QueryHandle]:
        """The Spark queries of the tables that were started, by the names of their tables."""
        from evertable.queries import QueryHandle

        runner = self._runner
        return {run.table.name: QueryHandle(runner, run) for run in runner.runs} if runner else {}

    def listen(
        self,
        *,
        start: Callable[[Started], object] | None = None,
        progress: Callable[[Batch], object] | None = None,
        idle: Callable[[Idle], object] | None = None,
        refresh: Callable[[Refreshed], object] | None = None,
        retry: Callable[[Retrying], object] | None = None,
        notice: Callable[[Noticed], object] | None = None,
        end: Callable[[Ended], object] | None = None,
    ) -> None:
        """Have functions called when a table starts, has finished a batch, finds nothing to do, has
        read its statics anew, waits for a sink that is down, has something to say, ends. They are
        called on threads of ours, and may not block long."""
        from evertable.queries import Listeners

        self._listeners = self._listeners or Listeners()
        self._listeners.add(
            start=start,
            progress=progress,
            idle=idle,
            refresh=refresh,
            retry=retry,
            notice=notice,
            end=end,
        )

    def tell(self, event: Event) -> None:
        """Pass an event on to whoever listens."""
        if self._listeners is not None:
            self._listeners.tell(event)

    def run_of(self, table: str) -> TableRun | None:
        """The run of one table, if it was started here."""
        runs = self._runner.runs if self._runner else []
        return next((run for run in runs if run.table.name == table), None)

    def _raise_failure(self) -> None:
        from evertable.errors import TableFailed

        if self._runner is not None:
            findings = [r.finding for r in self._runner.failed() if r.finding]
            if findings:
                raise TableFailed(*findings)


class TableHandle:
    """One table of a pipeline, to read from: while it runs, and afterwards."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self._pipeline = pipeline
        self.name = name

    def rows(self) -> list[dict[str, Any]]:
        """All rows, as dictionaries."""
        from evertable.run.runner import chosen
        from evertable.sinks.embedded.reader import query

        model = self._pipeline.model
        table = chosen(model, [self.name])[0]
        if table.sink("embedded"):
            file = Storage.of(model).table_file(self.name)
            answer = query(f'SELECT * FROM "{self.name}"', {self.name: file})
            return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        if table.sink("memory"):
            return self._memory_rows()
        raise Refused(
            Finding(
                "TABLE_ELSEWHERE",
                f'table "{self.name}" is kept by its sink "{table.sinks[0].format}", not here',
                table.location,
            )
        )

    def _memory_rows(self) -> list[dict[str, Any]]:
        run = self._pipeline.run_of(self.name)
        if run is None:
            raise Refused(
                Finding("TABLE_EMPTY", f'table "{self.name}" is in memory, and nothing runs')
            )
        return [row.asDict(recursive=True) for row in run.session.table(self.name).collect()]

    def to_arrow(self) -> pa.Table:
        """All rows, as an Arrow table with the types that Spark gave them; structs, arrays and maps
        as JSON."""
        import pyarrow as pa

        from evertable.run.runner import chosen
        from evertable.sinks.embedded.arrow import to_arrow

        model = self._pipeline.model
        file = Storage.of(model).table_file(self.name)
        if not chosen(model, [self.name])[0].sink("embedded") or not os.path.exists(file):
            return pa.Table.from_pylist(self.rows())  # which says so where there is nothing
        return to_arrow(file, self.name)

    def to_pandas(self) -> pd.DataFrame:
        """All rows, as a pandas DataFrame."""
        return self.to_arrow().to_pandas()
