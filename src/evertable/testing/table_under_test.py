"""One table under test: its batches, one at a time, and what can be asked of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evertable.errors import Finding, TableFailed
from evertable.model.durations import millis
from evertable.model.pipeline import Table, Trigger
from evertable.run.faults import Fault
from evertable.run.stage import Stage
from evertable.run.states import State
from evertable.run.table_run import TableRun
from evertable.sinks.embedded.reader import query
from evertable.spark import planner, stepping
from evertable.spark import session as spark_session
from evertable.spark.checkpoint import Checkpoint
from evertable.testing import state
from evertable.testing.kept import KeptSink, flat, read_back, spec_of
from evertable.testing.last_batch import begin_last_batch
from evertable.testing.rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from evertable.testing.under_test import PipelineUnderTest

_STEP = "1 millisecond"
FEW = {"spark.sql.shuffle.partitions": "1"}  # of few rows most tasks would be empty


class Struck(Exception):
    """A crash that a test asked for."""

    def __init__(self, point: Fault, table: str, batch: int) -> None:
        super().__init__(f'table "{table}" crashed {point.value} in batch {batch}')
        self.point = point


class TableUnderTest:
    """What `pipeline.table(name)` is in a test."""

    def __init__(self, pipeline: PipelineUnderTest, definition: Table) -> None:
        self.name = definition.name
        self.definition = definition
        self.pipeline = pipeline
        self._checkpoint = Checkpoint(pipeline.storage.checkpoint(self.name))
        self._run: TableRun | None = None
        self.started = False  # ever
        self._clock = stepping.StepClock(0)
        self._emitted: list[pa.Table] = []
        self._progress: list[dict[str, Any]] = []
        self._pending: list[pa.Table] = []
        self._seen = 0  # pushes before its last trigger

    # -- what a test asks --------------------------------------------------------------------

    def rows(self, *columns: str) -> Rows:
        """All rows of the table now, or some of their columns."""
        return self._as_rows(self.rows_in_order(), columns)

    def rows_in_order(self) -> list[dict[str, Any]]:
        """The same, with Python's own values, in the order in which they are kept."""
        file = self.pipeline.storage.table_file(self.name)
        self.prepare()
        answer = query(f'SELECT * FROM "{self.name}" ORDER BY rowid', {self.name: file})
        found = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        return read_back(found, self.schema)

    @property
    def changes(self) -> Rows:
        """What the last `run_batch`, `run_until_idle` or `advance` emitted."""
        found = [row for batch in self._emitted for row in flat(batch, self.schema)]
        return self._as_rows(found, ())

    @property
    def watermark(self) -> str | None:
        """The watermark that the next batch begins with; None before the first."""
        at = self._checkpoint.watermark_millis()
        return self.pipeline.day.shown_millis(at) if at else None

    @property
    def progress(self) -> dict[str, Any]:
        """Spark's own progress of the newest batch."""
        return self._progress[-1] if self._progress else {}

    @property
    def batches(self) -> int:
        """How many batches are committed."""
        return self._checkpoint.last_commit() + 1

    @property
    def dropped_by_watermark(self) -> int:
        """How many rows Spark dropped as late, in all batches so far. Of an aggregation it counts
        late groups of a batch, not rows."""
        return sum(
            operator.get("numRowsDroppedByWatermark", 0)
            for progress in self._progress
            for operator in progress.get("stateOperators", [])
        )

    def state(self, **key: Any) -> Rows:
        """What is kept: a row for each key and operator, as Spark's state reader shows it. With
        column=value only the rows of that key."""
        if self._checkpoint.last_commit() < 0:
            return self._as_rows([], ())
        found = state.rows(self.pipeline.spark, self._checkpoint.folder)
        wanted = self._as_rows([key], ())[0] if key else {}
        rows = self._as_rows(found, ())
        kept = [r for r in rows if all(r.get(k) == v for k, v in wanted.items())]
        return self._as_rows(kept, ())

    def __repr__(self) -> str:
        return f"<table {self.name!r} under test: {self.batches} batches>"

    def _as_rows(self, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Rows:
        chosen = [{c: row[c] for c in columns} for row in rows] if columns else rows
        return Rows(chosen, self.pipeline.day, self.name)

    # -- what the pipeline does --------------------------------------------------------------

    @property
    def interval(self) -> int | None:
        """Milliseconds between two triggers, where it has a fixed time."""
        trigger = self.definition.trigger
        fixed = trigger.kind == "processing_time" and trigger.interval
        return millis(trigger.interval) if fixed and trigger.interval else None

    @property
    def keyed(self) -> bool:
        """Whether updates replace rows, as its own sink wants it."""
        return spec_of(self.definition).format == "embedded"

    @property
    def run(self) -> TableRun:
        self.prepare()
        assert self._run is not None
        return self._run

    @property
    def frame(self) -> DataFrame:
        """The streaming DataFrame of its query."""
        analysed = self.run.analysed
        assert analysed is not None
        return analysed.frame

    @property
    def schema(self) -> StructType:
        return self.frame.schema

    def prepare(self) -> None:
        """Analyse it, lock it and claim its rows, once; raises what refuses."""
        if self._run is not None:
            return
        pipeline = self.pipeline
        spec = spec_of(self.definition)
        # Spark's own trigger asks the clock of the test, which decides when it happens.
        definition = replace(
            self.definition, sinks=(spec,), trigger=Trigger(kind="processing_time", interval=_STEP)
        )
        file = pipeline.storage.table_file(self.name)
        confs = spark_session.all_confs(
            FEW | dict(pipeline.model.spark), logs=pipeline.storage.logs, quick=True
        )
        run = TableRun(
            pipeline.model,
            definition,
            pipeline.spark,
            confs,
            show=lambda table, batch, rows: None,
            emit=lambda event: None,
            at=pipeline.strike,
            stage=Stage(
                opened=pipeline.sources.open,
                sink=KeptSink(file, self._pending.append, keyed=self.keyed),
                begin=self._begin,
            ),
        )
        run.prepare()
        self._run, self.started = run, True

    def _begin(self, writer: DataStreamWriter, frame: DataFrame) -> StreamingQuery:
        self._clock = stepping.StepClock(max(self.pipeline.millis, self._clock.now + 1))
        query: StreamingQuery = stepping.begin(writer, frame, self._clock)
        return query

    def trigger(self, at: int) -> bool:
        """One trigger, at this time or right after the last one; whether a batch came of it."""
        run, before = self.run, self._checkpoint.last_commit()
        self._seen = self._arrived()
        if run.state is State.READY:
            run.start()
            assert run.query is not None
            waits = self._clock.until_it_waits(run.query)
        else:
            assert run.query is not None
            waits = self._clock.step(at, run.query)
        if waits and self._checkpoint.last_commit() == before:
            run.idle("")
            run.ended()  # starts the query anew, with the batch that a crash kept from running
            waits = self._clock.until_it_waits(run.query)
        self.pipeline.passed(self._clock.now)
        if not waits:
            self._raise()
        ran = self._checkpoint.last_commit() > before
        if ran:
            self._note()
        return ran and not self._goes_by_the_clock()

    def _note(self) -> None:
        query: Any = self.run.query
        self._progress.append(query.newest_progress())
        self._pass_on()

    def _pass_on(self) -> None:
        """The rows that the sink has got go to the tables that read this one."""
        batches, self._pending[:] = list(self._pending), []
        self._emitted += batches
        for batch in batches:
            self.pipeline.emitted(self, batch)

    def _goes_by_the_clock(self) -> bool:
        """Whether Spark would run batches for ever, since timers might be due in each."""
        newest = self._progress[-1]
        return newest.get("numInputRows", 0) == 0 and planner.waits_for_the_clock(self.frame)

    def due(self, now: int, until: int) -> int | None:
        """The next time after `now` at which its trigger has something to do."""
        if self.interval is None:
            return None
        at = (now // self.interval + 1) * self.interval
        if at > until:
            return None
        if planner.waits_for_the_clock(self.frame) or self._has_work():
            return at
        return None

    def _has_work(self) -> bool:
        return self._arrived() != self._seen or self._checkpoint.has_pending_batch()

    def _arrived(self) -> int:
        """How often something was pushed into what it reads."""
        analysed = self.run.analysed
        streams = {stream.name for stream in analysed.built.streams} if analysed else ()
        return sum(self.pipeline.sources.blocks(name) for name in streams)

    def _raise(self) -> None:
        """Why the query has ended."""
        run = self.run
        error = run.first_error
        if isinstance(error, Struck):
            if error.point is Fault.AFTER_SINK_COMMIT:
                self._pass_on()
            raise error
        run.ended()
        finding = run.finding or Finding("TABLE_ENDED", f'table "{self.name}" has ended')
        raise TableFailed(finding)

    def forget_changes(self) -> None:
        self._emitted = []

    def end(self) -> None:
        """Stop the query where it stands, and let go of everything."""
        run, self._run = self._run, None
        if run is None:
            return
        if run.query is not None and run.query.isActive:
            run.query.stop()
        run.release()
        self._pending.clear()

    def end_time(self) -> None:
        """One more batch, with a watermark that all events are behind: every window ends. There can
        be no rows after it."""
        self.end()
        if begin_last_batch(self._checkpoint):
            self.forget_changes()
            self.trigger(self.pipeline.millis)
