"""`evertable run [FILE]`: runs tables until they end or somebody stops them."""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.picture import (
    RunView,
    TableView,
    event_json,
    log_line,
    shown_rows,
    utc_now,
)
from evertable.cli.plan import answers_of
from evertable.cli.terminal import Terminal, clean, count, duration, plain, visible
from evertable.model.pipeline import Pipeline
from evertable.plan.answers import Answer
from evertable.run.events import Batch, Ended, Event, Idle
from evertable.run.runner import Runner, Stopped, chosen
from evertable.spark import printed
from evertable.spark.secrets import redact

_REDRAWS = 4  # a second, at most
_SAME_KEYPRESS = 0.3  # seconds; `timeout`, `make` and shells pass one signal on a second time


def arguments(parser: argparse.ArgumentParser) -> None:
    pipeline_arguments(parser)
    parser.add_argument("--only", metavar="A,B", help="these tables only")
    parser.add_argument("--master", metavar="URL", help="the Spark master, such as local[4]")
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="TABLE=WAY",
        help="the way of a table whose edit asks for one",
    )
    parser.add_argument("--log-every", type=float, default=30, metavar="SECONDS")
    parser.add_argument("--json", action="store_true", help="one JSON object an event")


def command(options: argparse.Namespace) -> int:
    from evertable.project import listener_in, open_pipeline

    pipeline = open_pipeline(options.file, sets_of(options))
    only = [name for name in (options.only or "").split(",") if name]
    answers = answers_of(options.answer, [t.name for t in chosen(pipeline, only)])
    return run(
        with_master(pipeline, options.master),
        only,
        as_json=options.json,
        log_every=options.log_every,
        tell=listener_in(pipeline),
        answers=answers,
    )


def with_master(pipeline: Pipeline, master: str | None) -> Pipeline:
    """The pipeline on another master than the one it names."""
    from dataclasses import replace

    if master is None:
        return pipeline
    confs = {k: v for k, v in pipeline.spark.items() if k not in ("master", "spark.master")}
    return replace(pipeline, spark={**confs, "master": master})


def run(
    pipeline: Pipeline,
    only: Sequence[str] = (),
    *,
    as_json: bool = False,
    log_every: float = 30,
    tell: Callable[[Event], None] = lambda event: None,
    answers: Mapping[str, Answer] | None = None,
) -> int:
    """Run in the foreground; the exit code. Both `evertable run` and `pipeline.run()`."""
    terminal = Terminal.of(sys.stdout)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    names = [t.name for t in chosen(pipeline, only)]
    view = RunView(pipeline.name, {name: TableView(name) for name in names})
    screen: Screen = (
        JsonLines(terminal)
        if as_json
        else Live(terminal, view)
        if terminal.live
        else Log(terminal, log_every)
    )

    def emit(event: Event) -> None:
        events.put(event)
        tell(event)

    printed.to(screen.printed)
    runner = Runner(pipeline, only=only, emit=emit, show=screen.rows, answers=answers)
    begun = time.monotonic()
    if terminal.live and not as_json:
        Terminal.of(sys.stderr).line("starting Spark…")
    runner.start()
    _warn(pipeline, runner)
    begun_running = time.monotonic()
    screen.started(len(names), begun_running - begun)
    signals = Signals()
    stopped: list[Stopped] = []

    def tick() -> None:
        while not events.empty():
            event = events.get()
            view.take(event)
            screen.event(event)
        screen.tick(time.monotonic() - begun_running)
        if signals.asked and not signals.stopping:
            signals.stopping = True
            screen.stopping()
            stopped.extend(runner.stop())

    runner.wait(tick)
    runner.keep_stacks()
    screen.ended(view, stopped, time.monotonic() - begun_running)
    failed = runner.failed()
    if failed:
        errors = Terminal.of(sys.stderr)
        errors.line()
        errors.findings([r.finding for r in failed if r.finding])
    return 1 if failed else 0


def _warn(pipeline: Pipeline, runner: Runner) -> None:
    """What `check` warns of, in short; a run goes on all the same."""
    from evertable.check.allowed import silence
    from evertable.project import allows

    errors = Terminal.of(sys.stderr)
    for finding in silence(runner.foreseen(), allows(pipeline), pipeline):
        if finding.severity == "warning":
            errors.line(f"{errors.mark('look')} {clean(redact(str(finding)))}")


class Signals:
    """The first Ctrl-C or SIGTERM asks; the second one ends everything at once."""

    def __init__(self) -> None:
        self.asked = False
        self.stopping = False
        self._first = 0.0
        # Spark sets a handler of its own when it starts, so ours comes after it.
        signal.signal(signal.SIGINT, self._signal)
        signal.signal(signal.SIGTERM, self._signal)

    def _signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            if time.monotonic() - self._first < _SAME_KEYPRESS:
                return
            from evertable.spark import session

            session.kill()
            os._exit(130)
        self.asked = True
        self._first = time.monotonic()


class Screen:
    """What a run is shown on."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    def started(self, tables: int, seconds: float) -> None: ...

    def event(self, event: Event) -> None: ...

    def tick(self, seconds: float) -> None: ...

    def rows(self, table: str, batch: int, rows: Any) -> None: ...

    def printed(self, line: str) -> None:
        """Rows that Spark itself shows, where there are no batches that we could."""
        self.terminal.line(clean(line))

    def stopping(self) -> None:
        self.terminal.line("stopping after the batches that run now; Ctrl-C again stops at once")

    def ended(self, view: RunView, stopped: Sequence[Stopped], seconds: float) -> None:
        for one in stopped:
            if one.delivered:
                what = f"batch {one.batch:,} delivered" if one.batch is not None else "delivered"
            else:
                what = (
                    f"batch {one.batch:,} was not delivered; it is the first one next time"
                    if one.batch is not None
                    else "failed while it was stopped"
                )
            mark = self.terminal.mark("fine" if one.delivered else "look")
            self.terminal.line(f"{mark} {one.table:<21} {what}")
        tables = view.tables.values()
        rows_in = sum(t.rows_in for t in tables)
        rows_out = sum(t.rows_out for t in tables)
        late = sum(t.late for t in tables)
        bad = sum(t.bad for t in tables)
        word = "stopped" if stopped else "ended"
        said = f"{word} after {duration(seconds)}: {count(rows_in)} rows in, {count(rows_out)} out"
        if late:
            said += f", {count(late)} late"
        if bad:
            said += f", {count(bad)} bad"
        self.terminal.line()
        self.terminal.line(said)


class Live(Screen):
    """Redraws its own lines; what was above them stays."""

    def __init__(self, terminal: Terminal, view: RunView) -> None:
        super().__init__(terminal)
        self._view = view
        self._drawn: list[str] = []
        self._last = 0.0
        self._pending: queue.SimpleQueue[list[str]] = queue.SimpleQueue()

    def rows(self, table: str, batch: int, rows: Any) -> None:
        self._pending.put(shown_rows(table, batch, rows))

    def printed(self, line: str) -> None:
        self._pending.put([clean(line)])

    def tick(self, seconds: float) -> None:
        above: list[str] = []
        while not self._pending.empty():
            above += self._pending.get()
        if not above and time.monotonic() - self._last < 1 / _REDRAWS:
            return
        self._last = time.monotonic()
        lines = fitted(self._view.lines(self.terminal, seconds, utc_now()))
        if above:
            self._clear()
            for line in above:
                self.terminal.line(line)
        self._draw(lines)

    def stopping(self) -> None:
        self.terminal.line()  # below the ^C that the terminal shows
        super().stopping()
        self._drawn = []

    def ended(self, view: RunView, stopped: Sequence[Stopped], seconds: float) -> None:
        self._draw(self._view.lines(self.terminal, seconds, utc_now()))
        self.terminal.line()
        super().ended(view, stopped, seconds)

    def _clear(self) -> None:
        if self._drawn:
            self.terminal.out.write(f"\x1b[{len(self._drawn)}F\x1b[J")
            self._drawn = []

    def _draw(self, lines: list[str]) -> None:
        """Only the lines that changed are written."""
        out = self.terminal.out
        if len(lines) < len(self._drawn):
            self._clear()
        if self._drawn:
            out.write(f"\x1b[{len(self._drawn)}F")
        for i, line in enumerate(lines):
            if i < len(self._drawn) and self._drawn[i] == line:
                out.write("\x1b[E")
            else:
                out.write(f"\x1b[2K{line}\n")
        out.flush()
        self._drawn = lines


def fitted(lines: list[str], size: os.terminal_size | None = None) -> list[str]:
    """As many lines and columns as the screen has: what scrolled away could not be redrawn."""
    columns, rows = size or shutil.get_terminal_size()
    most = max(3, rows - 2)
    if len(lines) > most:
        lines = [*lines[: most - 1], f"  and {len(lines) - most + 1} more lines"]
    return [line if visible(line) <= columns else plain(line)[:columns] for line in lines]


class Log(Screen):
    """Lines for a pipe, a container, a log shipper: a table's batches summed, changes at once."""

    def __init__(self, terminal: Terminal, every: float) -> None:
        super().__init__(terminal)
        self._every = every
        self._sums: dict[str, TableView] = {}
        self._newest: dict[str, Batch] = {}
        self._last: dict[str, float] = {}

    def event(self, event: Event) -> None:
        if isinstance(event, Idle):
            return
        if isinstance(event, Batch):
            sums = self._sums.setdefault(event.table, TableView(event.table))
            sums.rows_in += event.rows_in
            sums.rows_out += event.rows_out or 0
            sums.late += event.late
            sums.bad += event.bad
            self._newest[event.table] = event
            self._say(event.table, due=self._every)
            return
        if isinstance(event, Ended):
            self._say(event.table, due=0)
        line = log_line(event)
        if line:
            self.terminal.line(line)

    def tick(self, seconds: float) -> None:
        for table in list(self._newest):
            self._say(table, due=self._every)

    def _say(self, table: str, due: float) -> None:
        batch = self._newest.get(table)
        if batch is None or time.monotonic() - self._last.get(table, -1e9) < due:
            return
        line = log_line(batch, self._sums.pop(table, None))
        if line:
            self.terminal.line(line)
        self._last[table] = time.monotonic()
        del self._newest[table]

    def rows(self, table: str, batch: int, rows: Any) -> None:
        for line in shown_rows(table, batch, rows):
            self.terminal.line(line)


class JsonLines(Screen):
    """One object a line."""

    def event(self, event: Event) -> None:
        value = event_json(event)
        if value is not None:
            self.terminal.line(json.dumps(value))

    def rows(self, table: str, batch: int, rows: Any) -> None:
        value = {"v": 1, "event": "rows", "table": table, "batch": batch, "rows": rows.to_pylist()}
        self.terminal.line(json.dumps(value, default=str))

    def printed(self, line: str) -> None:
        self.terminal.line(json.dumps({"v": 1, "event": "printed", "line": line}))

    def stopping(self) -> None:
        self.terminal.line(json.dumps({"v": 1, "event": "stopping"}))

    def ended(self, view: RunView, stopped: Sequence[Stopped], seconds: float) -> None:
        for one in stopped:
            value = {"v": 1, "event": "delivered" if one.delivered else "abandoned"}
            self.terminal.line(json.dumps({**value, "table": one.table, "batch": one.batch}))
