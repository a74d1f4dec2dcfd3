"""One table that runs: locked, judged, started, stopped.

new ── prepare ──▶ ready ── start ──▶ running ──▶ finished   (once, available now)
 │                   │                 │  ▲ │ ──▶ stopped    (asked to)
 │                   │                 ▼  │ │
 │                   │          backing off │    (its sink is down)
 └───────────────────┴──────────────────────┴──▶ failed
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evertable.errors import EvertableError, Finding, Refused
from evertable.model.durations import millis
from evertable.model.pipeline import Pipeline, Table
from evertable.model.storage import Storage
from evertable.plan.answers import Answer
from evertable.run import retry
from evertable.run.analysis import Analysed, analyse_table, table_session
from evertable.run.changing import Changing, Course
from evertable.run.claims import Claims
from evertable.run.delivery import Delivery
from evertable.run.events import (
    Ended,
    Event,
    Idle,
    Noticed,
    Refreshed,
    Retrying,
    Started,
    batch_of,
    now,
)
from evertable.run.faults import FaultHook
from evertable.run.identities import Identities
from evertable.run.stage import WORLD, Stage
from evertable.run.states import State, jvm_died
from evertable.run.targets import sink_options
from evertable.run.triggers import triggered
from evertable.sinks.functions import Show
from evertable.sinks.registry import capabilities, start_writer
from evertable.sources.examine import recreated
from evertable.spark import planner
from evertable.spark.checkpoint import Checkpoint
from evertable.spark.decoding import bad_records
from evertable.spark.errors import explain, stack
from evertable.spark.listener import ProgressListener
from evertable.spark.lock import CheckpointLock
from evertable.spark.schemas import SchemaStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_EVERY = 0.02  # seconds between two looks at a batch that is to end


class TableRun:
    """One table, from its definition to its end. A value of State says where it is."""

    def __init__(
        self,
        pipeline: Pipeline,
        table: Table,
        spark: SparkSession,
        confs: Mapping[str, str],
        *,
        show: Show,
        emit: Callable[[Event], None],
        at: FaultHook,
        stage: Stage = WORLD,
        answer: Answer | None = None,
    ) -> None:
        storage = Storage.of(pipeline)
        self.table = table
        self.state = State.NEW
        self.query: StreamingQuery | None = None
        self.finding: Finding | None = None
        self.stack = ""
        self._what = f'table "{table.name}"'
        self._pipeline = pipeline
        self._emit = emit
        self._at = at
        self._stage = stage
        self._spark = table_session(spark, confs, table)
        self._schemas = SchemaStore(storage.schemas)
        self._checkpoint = Checkpoint(storage.checkpoint(table.name))
        self._identities = Identities(storage.identities(table.name))
        self._lock = CheckpointLock(spark, storage.lock(table.name), self._what, table.location)
        self._show = show
        self._claims = self._new_claims()
        self._changing = Changing(pipeline, table, self._spark, answer)
        self.course: Course | None = None  # what is run in its place, after an edit
        self._failures = 0  # in a row
        self._try_again_at: float | None = None  # on the monotonic clock, while it backs off
        self._delivery: Delivery | None = None
        self._listener = ProgressListener(self._progress, self.idle)
        self._query_id = ""
        self._frame: DataFrame | None = None
        self._analysed: Analysed | None = None
        self._stopping = False
        self._closing = False  # no more batches get through, and the query is about to restart
        self._statics_read = 0.0
        self._is_idle = False
        self._commit_at_start = self._last_seen = -1
        self._seeing, self._ending = threading.Lock(), threading.Lock()

    @property
    def session(self) -> SparkSession:
        """The table's own Spark session."""
        return self._spark

    @property
    def backing_off(self) -> bool:
        """Whether it waits until its sink may be there again."""
        return self.state is State.RUNNING and self._try_again_at is not None

    @property
    def first_error(self) -> BaseException | None:
        """What ended the query, before anything is made of it."""
        return self._delivered_error or self._error()

    @property
    def _delivered_error(self) -> BaseException | None:
        return self._delivery.error if self._delivery else None

    @property
    def analysed(self) -> Analysed | None:
        """What Spark said of the table, once it is prepared."""
        return self._analysed

    def _new_claims(self) -> Claims:
        return Claims(
            self._spark, self._pipeline, self.table, self._show, self._checkpoint, self._stage.sink
        )

    # -- before the start: everything that may refuse --------------------------------------

    def prepare(self) -> None:
        """Lock, build, and see that sink and checkpoint fit. Raises; starts nothing."""
        if self._durable:
            self._lock.take()
        try:
            if self._durable:
                self._changing.make_good()
            analysed = self._analyse()
            if self._durable and self._stage is WORLD:
                analysed = self._takes_its_course(analysed)
            self._frame = analysed.frame
            self._analysed = analysed
            if self.waits_for_its_rebuild:
                self.state = State.READY
                return
            if self.table.trigger.kind == "available_now" and planner.waits_for_the_clock(
                analysed.frame
            ):  # Spark would run batches without rows for ever
                self._spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
            if self._durable:
                self._sources_are_the_same(analysed)
                self._query_id = self._checkpoint.make_query_id()
                self._claim(self._frame, analysed.keys)
            self.state = State.READY
        except BaseException as e:
            self.release()
            if isinstance(e, EvertableError) or not isinstance(e, Exception):
                raise
            raise Refused(explain(e, self._what, self.table.location)) from e

    def _takes_its_course(self, analysed: Analysed) -> Analysed:
        """After an edit: on with the new query, with the old one, or from another beginning."""
        self.course = self._changing.course(analysed)
        if not self.course.anew:
            return analysed
        self._pipeline, self.table = self.course.pipeline, self.course.table
        self._claims = self._new_claims()
        analysed = self._analyse()
        self._changing.confirm(self.course, analysed)
        return analysed

    @property
    def waits_for_its_rebuild(self) -> bool:
        """Whether a new version of it is built first."""
        return self.course is not None and self.course.rebuilt

    def _analyse(self) -> Analysed:
        named = self._checkpoint.sources_named()
        return analyse_table(
            self._spark,
            self._pipeline,
            self.table,
            self._schemas,
            named=named,
            opened=self._stage.opened,
            shaped=self._durable and self._stage is WORLD,
        )

    @property
    def _durable(self) -> bool:
        """Whether rows are kept after the run, so that the checkpoint has to be kept too."""
        return any(capabilities(spec).durable for spec in self.table.sinks)

    def _sources_are_the_same(self, analysed: Analysed) -> None:
        """Refuse a topic that was made again; remember the ids of those that are read."""
        known = self._identities.read() if self._checkpoint.last_offset() >= 0 else {}
        streams = {stream.name: stream for stream in analysed.built.streams}
        for name, examined in analysed.sources.items():
            finding = recreated(streams[name], known.get(name, {}), examined.identity)
            if finding:
                raise Refused(finding)
        now = {name: {**known.get(name, {}), **e.identity} for name, e in analysed.sources.items()}
        self._identities.write({name: ids for name, ids in now.items() if ids})

    def _claim(self, frame: DataFrame, keys: Sequence[str]) -> None:
        """Take the targets; refuse them where they do not fit the checkpoint or the rows."""
        self._claims.take(self._query_id)
        self._prepare_sinks(frame, keys)

    def _prepare_sinks(self, frame: DataFrame, keys: Sequence[str]) -> None:
        self._claims.prepare(frame.schema, keys)
        if self._claims.sessions:
            self._delivery = Delivery(
                self.table,
                self._claims.sessions,
                self._checkpoint,
                self._query_id,
                keys,
                self._at,
                lambda finding: self._emit(Noticed(self.table.name, now(), finding)),
            )

    # -- running -----------------------------------------------------------------------------

    def start(self) -> None:
        """Hand the query to Spark; returns at once."""
        assert self._frame is not None
        self._listener.attach(self._spark)
        try:
            self._commit_at_start = self._checkpoint.last_commit()
            if self.course is not None:
                self._changing.begins(self.course)
            self.query = self._start_query(self._frame)
        except Exception as e:
            raise self._failed(e) from e
        self._statics_read = time.monotonic()
        self.state = State.RUNNING
        self._emit(Started(self.table.name, now()))

    def _start_query(self, frame: DataFrame) -> StreamingQuery:
        context: Any = self._spark.sparkContext
        # One pool a table: a table with much to do does not make the others wait.
        context.setLocalProperty("spark.scheduler.pool", self.table.name)
        try:
            writer = self._writer(frame)
            if self._delivery is not None:
                return self._stage.begin(writer.foreachBatch(self._delivery), frame)
            options = sink_options(self._pipeline, self.table, self.table.sinks[0])
            return start_writer(writer, self._spark, self._pipeline, self.table, options)
        finally:
            context.setLocalProperty("spark.scheduler.pool", None)

    def _writer(self, frame: DataFrame) -> Any:
        writer = frame.writeStream.outputMode(self.table.output_mode).queryName(self.table.name)
        writer = triggered(writer, self.table.trigger)
        if self._durable:
            writer = writer.option("checkpointLocation", self._checkpoint.folder)
        return writer

    def ended(self) -> bool:
        """Look whether the query has come to its end; note how, once."""
        with self._ending:  # whoever waits and whoever stops both look
            if self.state is not State.RUNNING:
                return self.state is not State.READY
            assert self.query is not None
            if self._try_again_at is not None:
                return self._tries_again()
            try:
                active = self.query.isActive
            except Exception:
                self._spark_died()
                return True
            if self._reads_statics_anew(active):
                return self.state is not State.RUNNING
            if (not active or self._is_idle) and self._runs_pending_batch():
                return False
            if active:
                return False
            error = self._error()
            if error is not None and not self._stopping:
                return not self._backs_off(self._delivered_error or error)
            self._end(State.STOPPED if self._stopping else State.FINISHED)
            return True

    def _backs_off(self, error: BaseException) -> bool:
        """Whether what ended the query may pass: then it starts again, with the same batch."""
        finding = explain(error, self._what, self.table.location)
        if self._delivery is not None and self._delivery.delivered:
            self._failures = 0  # something got through since the last failure
        self._failures += 1
        pause = retry.pause(finding, self._failures, ends=self.table.trigger.ends)
        if pause is None:
            self._failed(error)
            return False
        self._delivery = None
        self._claims.give_up()
        self._try_again_at = time.monotonic() + pause
        most = retry.MOST if self.table.trigger.ends else None
        batch = self._checkpoint.last_commit() + 1
        self._emit(
            Retrying(self.table.name, now(), finding, self._failures + 1, most, pause, batch)
        )
        return True

    def _tries_again(self) -> bool:
        """Once the pause is over: claim the targets anew, and go on. Whether that was the end."""
        assert self._try_again_at is not None
        assert self._frame is not None
        assert self._analysed is not None
        if self._stopping or time.monotonic() < self._try_again_at:
            return False
        self._try_again_at = None
        try:
            self._claim(self._frame, self._analysed.keys)
            self.query = self._start_query(self._frame)
        except Exception as e:
            return not self._backs_off(e)
        return False

    def _reads_statics_anew(self, active: bool) -> bool:
        """Restart the query, between two batches, when its statics are old; True meanwhile.

        Spark lists the files of a static table once, when the query is built.
        """
        assert self._analysed is not None
        assert self.query is not None
        every = [millis(s.refresh) / 1000 for s in self._analysed.built.statics if s.refresh]
        due = every and time.monotonic() - self._statics_read > min(every)
        if not due or self._stopping or self.table.trigger.ends:
            return False
        if not active and (not self._closing or self._error() is not None):
            return False
        if not self._closing:
            self._closing = self._delivery.close() if self._delivery else True
        in_batches = not self.table.trigger.holds_slots
        if not self._closing or (active and in_batches and self.running_batch() is not None):
            return True  # a batch that got through is to be committed first
        self._closing = False
        try:
            self.query.stop()
            self._analysed = self._analyse()
            self._frame = self._analysed.frame
            self._prepare_sinks(self._frame, self._analysed.keys)
            self.query = self._start_query(self._frame)
        except Exception as e:
            self._backs_off(e)  # and then reads them, as they are due all the same
            return True
        self._statics_read = time.monotonic()
        self._emit(Refreshed(self.table.name, now()))
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, whoever brings it about; False if the time was over before."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self.ended():
            if until is not None and time.monotonic() >= until:
                return False
            time.sleep(_LOOK_EVERY)
        return True

    def recent_progress(self) -> list[dict[str, Any]]:
        """Spark's own progress of the last batches, oldest first."""
        query = self.query
        return [json.loads(p.json) for p in query.recentProgress] if query is not None else []

    def _runs_pending_batch(self) -> bool:
        """Start again with the batch without data that a crash kept from running; True if so.

        Only when nothing new was there to read: a batch with rows does the same, and one more
        batch before it would judge them by a later watermark.
        """
        self._is_idle = False
        assert self.query is not None
        nothing_ran = self._checkpoint.last_commit() == self._commit_at_start
        if (
            not nothing_ran
            or self._stopping
            or self.query.exception() is not None
            or self.table.trigger.kind == "once"  # runs one batch, and that is to take new rows
            or self.table.output_mode == "complete"
            or not self._checkpoint.has_pending_batch()
        ):
            return False
        assert self._frame is not None
        self.query.stop()
        if self._checkpoint.has_pending_batch():  # and no rows came in the meantime
            self._checkpoint.begin_pending_batch()
        try:
            self.query = self._start_query(self._frame)
        except Exception as e:
            self._failed(e)
        return True

    def _error(self) -> BaseException | None:
        """What ended the query, unless we did it ourselves."""
        if self.query is None or (self._delivery is not None and self._delivery.turned_away):
            return None
        return self.query.exception()

    def _failed(self, error: BaseException) -> Refused:
        """Note why the table failed."""
        self.finding = explain(self._delivered_error or error, self._what, self.table.location)
        self.stack = stack(error)
        self._end(State.FAILED)
        return Refused(self.finding)

    def _spark_died(self) -> None:
        """Nothing of Spark can be asked any more."""
        self.state = State.FAILED
        self.finding = jvm_died(self._what, self.table.location)
        self._claims.give_up()
        self._emit(Ended(self.table.name, now(), State.FAILED.value, self.finding))

    def _end(self, state: State) -> None:
        self.state = state
        self._listener.detach(self._spark)
        if self.query is not None:
            for progress in self.query.recentProgress:  # what the listener's queue still held
                self._progress(progress.json)
        self.release()
        self._emit(Ended(self.table.name, now(), state.value, self.finding))

    def release(self) -> None:
        """Let go of target and lock."""
        self._claims.give_up()
        self._lock.release()

    def leave_out(self, why: Finding | None = None) -> None:
        """End a table that was to be started later, and is not."""
        self.finding = why
        self._end(State.STOPPED if why is None else State.FAILED)

    def running_batch(self) -> int | None:
        """The batch that is begun and not committed; None between batches."""
        if self.table.async_progress:
            return None  # the logs are behind, so they do not tell
        begun = self._checkpoint.last_offset()
        return begun if begun > self._checkpoint.last_commit() else None

    def stop(self, deadline: float, give_up: Callable[[], bool]) -> bool:
        """Stop at the end of the batch that runs now; True if that batch was delivered.

        `deadline` is on the monotonic clock; a batch that is not done by then is abandoned, and
        comes again at the next start.
        """
        if self.state is not State.RUNNING:
            return True
        assert self.query is not None
        batch = self.running_batch()
        while (
            batch is not None
            and self._checkpoint.last_commit() < batch
            and self.query.isActive
            and time.monotonic() < deadline
            and not give_up()
        ):
            time.sleep(_LOOK_EVERY)
        with self._ending:
            if self.backing_off:
                self._end(State.STOPPED)
                return False
            error = None if self.query.isActive else self._error()
            if error is not None and self.state is State.RUNNING:
                self._failed(error)  # by itself, meanwhile
            if self.state is not State.RUNNING:
                return self.state is not State.FAILED
            self._stopping = True
            self.query.stop()  # returns when the batch has left the user's code
        self.ended()
        return batch is None or self._checkpoint.last_commit() >= batch

    def _progress(self, text: str) -> None:
        progress = json.loads(text)
        if "addBatch" not in progress.get("durationMs", {}):
            return  # an idle moment, which Spark notes like a batch that is yet to come
        rows_out = self._delivery.rows_out.get(progress["batchId"]) if self._delivery else None
        event = batch_of(self.table.name, now(), progress, rows_out, bad_records(progress))
        with self._seeing:
            if event.batch <= self._last_seen:
                return
            self._last_seen = event.batch
        self._emit(event)

    def idle(self, at: str) -> None:
        """Take note that there was nothing to do."""
        self._is_idle = True
        self._emit(Idle(self.table.name, at))
