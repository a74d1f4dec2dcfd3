"""All tables of a pipeline: prepared together, started together, each ending by itself."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evertable.errors import DefinitionError, EvertableError, Finding, NotReady, Refused
from evertable.model.durations import millis
from evertable.model.names import did_you_mean
from evertable.model.pipeline import Pipeline, Table
from evertable.model.storage import Storage
from evertable.plan.answers import Answer
from evertable.run.analysis import slots_problem
from evertable.run.events import Event
from evertable.run.faults import FaultHook, nothing_strikes
from evertable.run.manifests import make_key
from evertable.run.opening import open_spark
from evertable.run.rebuilding import begin_anew, passed_again, rebuilding
from evertable.run.states import State
from evertable.run.swapping import swap
from evertable.run.table_run import TableRun
from evertable.sinks.functions import Show
from evertable.spark import session as spark_session
from evertable.spark.hops import tables_read, upstream_first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_EVERY = 0.1


@dataclass(frozen=True)
class Stopped:
    """How one table was stopped."""

    table: str
    delivered: bool
    batch: int | None


class Runner:
    """Runs tables until they end or are stopped."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        only: Sequence[str] = (),
        emit: Callable[[Event], None] = lambda event: None,
        show: Show = lambda table, batch, rows: None,
        at: FaultHook = nothing_strikes,
        spark: SparkSession | None = None,
        quick: bool = False,
        answers: Mapping[str, Answer] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._tables = chosen(pipeline, only)
        self._emit = emit
        self._show = show
        self._at = at
        self._spark = spark
        self._quick = quick
        self._answers = dict(answers or {})
        self._confs: dict[str, str] = {}
        self._give_up = threading.Event()
        self.runs: list[TableRun] = []
        self._upstream: dict[str, list[TableRun]] = {}
        self._rebuilt: dict[str, TableRun] = {}  # table -> what takes its place when it is done
        self._passes: dict[str, int] = {}  # how often that was run

    def start(self) -> None:
        """Start every table, or none: whatever refuses does so before the first one starts."""
        storage = Storage.of(self.pipeline)
        make_storage(storage)
        make_key(self.pipeline)
        self._confs = spark_session.all_confs(
            self.pipeline.spark, logs=storage.logs, quick=self._quick
        )
        spark = self._spark or open_spark(self.pipeline, logs=storage.logs, quick=self._quick)
        self._spark = spark
        reads = {t.name: tables_read(spark, self.pipeline, t) for t in self._tables}
        self.runs = [self._run_of(table) for table in upstream_first(self._tables, reads)]
        self._upstream = {
            run.table.name: [up for up in self.runs if up.table.name in reads[run.table.name]]
            for run in self.runs
        }
        self._prepare()
        try:
            for run in self.runs:
                if not self._waits(run):
                    run.start()
        except BaseException:
            self.stop()
            for run in self.runs:
                run.release()
            raise

    def _run_of(self, table: Table) -> TableRun:
        assert self._spark is not None
        return TableRun(
            self.pipeline,
            table,
            self._spark,
            self._confs,
            show=self._show,
            emit=self._emit,
            at=self._at,
            answer=self._answers.get(table.name),
        )

    def _prepare(self) -> None:
        findings: list[Finding] = []
        worst: type[EvertableError] = EvertableError
        for run in list(self.runs):
            try:
                run.prepare()
                self._also(run)
            except EvertableError as e:
                findings += [f for f in e.findings if f not in findings]
                worst = type(e) if e.exit_code >= worst.exit_code else worst
        problem = self._too_few_slots()
        if problem:
            findings.append(problem)
            worst = Refused if worst is EvertableError else worst
        if findings:
            for run in self.runs:
                run.release()
            raise worst(*findings)

    def _also(self, run: TableRun) -> None:
        """The second table that an answer asks for: beside this one, or to take its place."""
        course = run.course
        if course is None or course.beside is None:
            return
        second = self._run_of(rebuilding(course.beside) if course.rebuilt else course.beside)
        self.runs.append(second)
        self._upstream[second.table.name] = self._upstream[run.table.name]
        if course.rebuilt:
            self._rebuilt[run.table.name] = second
            begin_anew(self.pipeline, second)
        else:
            second.prepare()

    def foreseen(self) -> list[tuple[str, Finding]]:
        """(table, what is to be said of it), of tables that may start all the same."""
        return [
            (run.table.name, finding)
            for run in self.runs
            if run.analysed
            for finding in run.analysed.findings
        ]

    def _too_few_slots(self) -> Finding | None:
        assert self._spark is not None
        return slots_problem(self._spark, [(r.table, r.analysed) for r in self.runs if r.analysed])

    def wait(self, tick: Callable[[], None] = lambda: None) -> None:
        """Return when every table has ended. `tick` is called a few times a second."""
        while [run for run in self.runs if not run.ended()]:
            self._stop_with_the_failed()
            self._start_waiting()
            tick()
            time.sleep(_LOOK_EVERY)
        tick()

    def _waits(self, run: TableRun) -> bool:
        """Whether a table that ends by itself has to wait for the rows of one that does too."""
        if run.waits_for_its_rebuild:
            return True
        return run.table.trigger.ends and any(
            up.table.trigger.ends and not up.ended() for up in self._upstream[run.table.name]
        )

    def _start_waiting(self) -> None:
        """Start the tables whose input is complete by now; leave out those that get none."""
        for run in [r for r in self.runs if r.state is State.READY]:
            if run.waits_for_its_rebuild:
                self._take_its_place(run)
                continue
            upstream = self._upstream[run.table.name]
            if any(up.ended() and up.state is not State.FINISHED for up in upstream):
                run.leave_out()
            elif not self._waits(run):
                with contextlib.suppress(EvertableError):  # it is among the failed now
                    run.start()

    def _take_its_place(self, run: TableRun) -> None:
        """The new version of a table is complete: swap, and go on with it."""
        second = self._rebuilt[run.table.name]
        if not second.ended():
            return
        if second.state is not State.FINISHED:
            run.leave_out()
            return
        begun = run
        try:
            self._passes[run.table.name] = passes = self._passes.get(run.table.name, 0) + 1
            if passed_again(second, passes):
                self.runs.remove(second)
                begun = self._rebuilt[run.table.name] = self._run_of(second.table)
                self.runs.append(begun)
                self._upstream[begun.table.name] = self._upstream[run.table.name]
            else:
                assert run.course is not None
                assert run.course.manifest is not None
                swap(self.pipeline, run.table, second.table, run.course.manifest)
                run.release()
                begun = self._run_of(run.table)
                self.runs[self.runs.index(run)] = begun
                self._upstream = {
                    name: [begun if up is run else up for up in ups]
                    for name, ups in self._upstream.items()
                }
            begun.prepare()
            begun.start()
        except EvertableError as e:
            if begun.state is not State.FAILED:
                begun.leave_out(e.findings[0])

    def _stop_with_the_failed(self) -> None:
        if any(r.state is State.FAILED and r.table.on_failure == "stop" for r in self.runs):
            self.stop()

    def stop(self, only: Sequence[str] = ()) -> list[Stopped]:
        """Stop every table, or some, at the end of the batch that it is in, upstream first."""
        results: list[Stopped] = []
        lock = threading.Lock()
        threads: dict[str, threading.Thread] = {}

        def stop(run: TableRun) -> None:
            for up in self._upstream[run.table.name]:
                if up.table.name in threads:
                    threads[up.table.name].join()
            batch = run.running_batch()
            until = time.monotonic() + millis(run.table.stop_timeout) / 1000
            delivered = run.stop(until, self._give_up.is_set)
            with lock:
                results.append(Stopped(run.table.name, delivered, batch))

        for run in self.runs:
            if only and run.table.name not in only:
                continue
            if run.state is State.READY:
                run.leave_out()
            elif run.state is State.RUNNING:
                name = run.table.name
                threads[name] = threading.Thread(target=stop, args=(run,), daemon=True)
        for thread in threads.values():
            thread.start()
        for thread in threads.values():
            thread.join()
        return results

    def failed(self) -> list[TableRun]:
        return [run for run in self.runs if run.state is State.FAILED]

    def keep_stacks(self) -> None:
        """The JVM's stacks of failed tables, to a file: nobody should have to read them."""
        log = Path(Storage.of(self.pipeline).logs, "failures.log")
        text = "".join(f"{run.table.name}\n{run.stack}\n\n" for run in self.failed())
        # A disk that is full may be why a table failed; that must still be said.
        with contextlib.suppress(OSError), log.open("a") as file:
            file.write(text)


def chosen(pipeline: Pipeline, only: Sequence[str]) -> tuple[Table, ...]:
    """The tables named with --only, all of them without."""
    names = [t.name for t in pipeline.tables]
    for name in only:
        if name not in names:
            raise DefinitionError(
                Finding(
                    "TABLE_UNKNOWN",
                    f'there is no table "{name}"',
                    hint=did_you_mean(name, names) or f"tables: {', '.join(names)}",
                )
            )
    return tuple(t for t in pipeline.tables if not only or t.name in only)


def make_storage(storage: Storage) -> None:
    """The pipeline's folder, for its owner's eyes only."""
    try:
        os.makedirs(os.path.dirname(storage.folder), mode=0o700, exist_ok=True)
        os.makedirs(storage.folder, mode=0o700, exist_ok=True)
        os.chmod(storage.folder, 0o700)
        os.makedirs(storage.logs, mode=0o700, exist_ok=True)
        probe = Path(storage.logs, f".probe-{os.getpid()}")
        probe.write_text("can this be written?")
        probe.unlink()
    except OSError as e:
        code = "DISK_FULL" if e.errno == 28 else "FOLDER_NOT_WRITABLE"
        raise NotReady.of(
            code,
            f'storage "{storage.folder}" cannot be written: {e.strerror}',
            hint="set `storage:` to a folder of yours, or make room",
        ) from e
