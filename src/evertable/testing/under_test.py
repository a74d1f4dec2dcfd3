"""A pipeline whose sources, time and crashes are in a test's hand; all else is as it is."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evertable.errors import EvertableError, Finding, Refused
from evertable.model.durations import millis
from evertable.model.names import did_you_mean
from evertable.model.pipeline import Pipeline, Static, Stream
from evertable.model.storage import Storage
from evertable.run.faults import Fault
from evertable.run.runner import chosen, make_storage
from evertable.sources.registry import SOURCES
from evertable.spark.hops import as_stream, tables_read, upstream_first
from evertable.spark.schemas import SchemaStore
from evertable.testing.played import PlayedSources
from evertable.testing.table_under_test import FEW, Struck, TableUnderTest
from evertable.testing.times import Day

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from evertable.plan.changes import Verdict

_MOST_BATCHES = 1_000  # of a table that never comes to rest


class PipelineUnderTest:
    """What the fixture `pipeline` is."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        *,
        touched: Callable[[TableUnderTest], None] = lambda table: None,
    ) -> None:
        zone = str(pipeline.spark.get("spark.sql.session.timeZone", "UTC"))
        self.day = Day(zone=zone)
        self.spark = spark
        self._original = pipeline
        self._touched = touched
        self._statics: dict[str, Static] = {}
        self._begin()

    def _begin(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="evertable-test-")
        self._millis = 0  # since the beginning of the day
        self._strikes: Fault | None = None
        self._crashed = False
        self._take(self._original)
        make_storage(self.storage)
        self._edited: tuple[Pipeline, set[str]] | None = None  # what was before the last edit
        self._schemas = SchemaStore(Storage.of(self._original).schemas, keep=False)
        self.sources = PlayedSources(self.spark, self.model, self._schemas, lambda: self.millis)
        self._tables: dict[str, TableUnderTest] = {}

    def _take(self, pipeline: Pipeline) -> None:
        statics = tuple(self._statics.get(s.name, s) for s in pipeline.statics)
        self.model = replace(pipeline, storage=self._folder, statics=statics)
        self.storage = Storage.of(self.model)
        self._reads = {t.name: tables_read(self.spark, self.model, t) for t in self.model.tables}
        self._order = [t.name for t in upstream_first(self.model.tables, self._reads)]

    # -- what goes in ------------------------------------------------------------------------

    def push(self, stream: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows that arrive together. Columns that a row leaves out are NULL; times may be short."""
        self._must_live()
        self.sources.push(self._stream(stream), rows, self.day)

    def static(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows of a static table, in place of its own; before the first batch."""
        from evertable.testing.statics import played

        if any(table.started for table in self._tables.values()):
            raise _misuse(f'static "{name}" was read already: give its rows before the first batch')
        known = {s.name: s for s in self.model.statics}
        if name not in known:
            raise _misuse(f'there is no static "{name}"', did_you_mean(name, known))
        self._statics[name] = played(self, known[name], rows)
        self._take(self.model)

    def _stream(self, name: str) -> Stream:
        known = {s.name: s for s in self.model.streams}
        if name not in known:
            raise _misuse(f'there is no stream "{name}"', did_you_mean(name, known))
        return known[name]

    # -- time and batches --------------------------------------------------------------------

    @property
    def millis(self) -> int:
        """The test's processing time, in milliseconds of Unix."""
        return self.day.millis("00:00") + self._millis

    @property
    def now(self) -> str:
        """The test's processing time; the day begins at 00:00, and a batch takes a millisecond."""
        return self.day.shown_millis(self.millis)

    def passed(self, millis: int) -> None:
        """A batch was run at this time."""
        self._millis = max(self._millis, millis - self.day.millis("00:00"))

    def feed(self, stream: str, batches: Iterable[Iterable[Mapping[str, Any]]]) -> None:
        """Push each of these and run a batch, one after the other."""
        for rows in batches:
            self.push(stream, rows)
            self.run_batch()

    def run_batch(self) -> None:
        """One batch of every table, with all that was pushed; none where there is nothing to do."""
        for table in self._running():
            table.forget_changes()
            table.trigger(self.millis)

    def run_until_idle(self) -> None:
        """All batches there are, those without rows included, in which watermarks close windows."""
        for table in self._running():
            table.forget_changes()
        self._until_idle()

    def _until_idle(self) -> None:
        for _ in range(_MOST_BATCHES):
            ran = [table.trigger(self.millis) for table in self._running()]
            if True not in ran:
                return
        raise _misuse(f"no rest after {_MOST_BATCHES} batches")

    def advance(self, time: str) -> None:
        """Let processing time pass: `advance("5 seconds")`. Triggers that come due in it happen at
        their times; tables without an interval look once, at the end."""
        target = self.millis + millis(time)
        for table in self._running():
            table.forget_changes()
        while True:
            due = [(at, t) for t in self._running() if (at := t.due(self.millis, target))]
            if not due:
                break
            at, table = min(due, key=lambda one: one[0])
            self.passed(at)
            table.trigger(at)
        self.passed(target)
        for table in self._running():
            if table.interval is None:
                table.trigger(self.millis)

    def end_time(self) -> None:
        """After the last rows: let every window close, in each table."""
        for table in self._running():
            table.end_time()
            self._until_idle()

    # -- tables ------------------------------------------------------------------------------

    def table(self, name: str) -> TableUnderTest:
        """A table. Only those that a test asks for run, with the tables that they read; all of them
        where it asks for none."""
        definition = chosen(self.model, [name])[0]
        if name not in self._tables:
            for up in sorted(self._reads[name]):
                self.table(up)
            self._tables[name] = TableUnderTest(self, definition)
            self._touched(self._tables[name])
        return self._tables[name]

    def tables_that_ran(self) -> list[TableUnderTest]:
        return [table for table in self._tables.values() if table.batches]

    def _running(self) -> list[TableUnderTest]:
        self._must_live()
        if not self._tables:
            for definition in self.model.tables:
                self.table(definition.name)
        return [self._tables[name] for name in self._order if name in self._tables]

    def emitted(self, table: TableUnderTest, rows: pa.Table) -> None:
        """What a table emits is what the tables get that read it."""
        if not any(table.name in self._reads[other] for other in self._tables):
            return
        stream = as_stream(table.definition, table.schema, SOURCES)
        self.sources.push(stream, rows.to_pylist(), self.day)

    # -- crashes -----------------------------------------------------------------------------

    @contextmanager
    def crash(self, fault: Fault) -> Iterator[None]:
        """The first batch in this block that comes to that moment ends everything, as `kill -9`
        would: what is on disk is what that moment leaves. `restart()` goes on."""
        self._must_live()
        self._strikes = fault
        try:
            yield
        except Struck:
            self._crashed = True
            self._end_queries()
        finally:
            self._strikes = None
        if not self._crashed:
            raise AssertionError(f"nothing crashed: no batch came to {fault.name}")

    def strike(self, point: Fault, table: str, batch: int) -> None:
        if point is self._strikes:
            raise Struck(point, table, batch)

    def restart(self, edited: Pipeline | str | None = None) -> None:
        """Start again from what is on disk, with the same pipeline or an edited one (a model, a
        file, or YAML). Tables that refuse say so here; `verdict(table)` is what `plan` says."""
        before = self.model
        if edited is not None:
            from evertable.testing.sessions import model_of

            self._take(model_of(edited, self._original.root))
        self._crashed = False
        ran = {name for name, table in self._tables.items() if table.started}
        self._end_queries()
        self._edited = (before, ran) if edited is not None else None
        for name in list(self._tables):
            definition = self.model.table(name)
            if definition is None:
                del self._tables[name]
            else:
                self._tables[name].definition = definition
        for name in self._order:
            if name in self._tables and name in ran:
                self._tables[name].prepare()

    def verdict(self, table: str) -> Verdict:
        """What `evertable plan` says of the last `restart(edited)`; the restart was done all the
        same, to see what comes of it. Ask before the next batch."""
        from evertable.testing.verdicts import verdict_of

        if self._edited is None or table not in self._edited[1]:
            raise _misuse(f'table "{table}" was not restarted with an edited pipeline')
        sources = PlayedSources(self.spark, self.model, self._schemas, lambda: self.millis)
        return verdict_of(self.spark, FEW, self._edited[0], self.model, table, sources.open)

    def reset(self) -> None:
        """Forget everything: rows, state, time. For examples of hypothesis, one after the other."""
        self.close()
        self._begin()

    def _must_live(self) -> None:
        if self._crashed:
            raise _misuse("the pipeline has crashed; restart() it first")

    def _end_queries(self) -> None:
        for table in self._tables.values():
            table.end()
        self.sources.forget_readers()

    def close(self) -> None:
        """End the queries and remove what they kept."""
        self._end_queries()
        shutil.rmtree(self._folder, ignore_errors=True)


def _misuse(message: str, hint: str = "") -> EvertableError:
    return Refused(Finding("TEST_INVALID", f"{message}; {hint}" if hint else message))
