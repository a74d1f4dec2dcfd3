"""`evertable demo`: streaming tables fill, Spark is killed on the way, and nothing is wrong after.

The pipeline runs as a process of its own, exactly as `evertable run` would run it; this process
feeds it, kills it, starts it again, and at the end compares its tables with one batch query each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import IO, Any

from evertable.cli.demo_data import Feed
from evertable.cli.terminal import Terminal, duration, plural
from evertable.errors import DefinitionError, EvertableError, Finding, Refused
from evertable.model.pipeline import Pipeline, Trigger
from evertable.model.storage import Storage
from evertable.spark.checkpoint import Checkpoint

FOLDER = "evertable-demo"
_MARKER = ".evertable-demo"  # only a folder that the demo made is ever removed by it
_STEP = 0.5  # seconds between two files
_START_LIMIT = 120.0
_KILL_AFTER = 4  # batches of each table


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", default=FOLDER, help=f"where to put it (./{FOLDER})")


def command(options: argparse.Namespace) -> int:
    return Demo(Terminal.of(sys.stdout), options.folder).play()


class Demo:
    """The story, in order."""

    def __init__(self, terminal: Terminal, folder: str) -> None:
        self._terminal = terminal
        self._folder = os.path.abspath(folder)
        self._shown = folder
        self._feeding = threading.Event()

    def play(self) -> int:
        say = self._terminal.line
        say(
            "Adverts, impressions and clicks, made up on this machine. No Kafka, no database, "
            "no network."
        )
        say()
        pipeline = self._prepare()
        feed = Feed(os.path.join(self._folder, "data"))
        self._feeding.set()
        feeder = threading.Thread(target=self._feed, args=(feed,), daemon=True)
        feeder.start()
        try:
            self._run_and_kill(pipeline)
            self._run_again(pipeline)
        finally:
            self._feeding.clear()
            feeder.join()
        closing = feed.close(datetime.now(UTC))
        self._finish(pipeline)
        equal = self._compare(pipeline, closing)
        say()
        self._show_rows(pipeline)
        say()
        say(f"All of it is in {self._shown}/; the next demo makes it anew.")
        say(f"{self._terminal.mark('next')} cd {self._shown}")
        say("  evertable check")
        say('  evertable query "SELECT * FROM cost_per_brand"')
        return 0 if equal else 1

    # -- the steps -----------------------------------------------------------------------------

    def _prepare(self) -> Pipeline:
        from evertable.project import open_pipeline

        folder = Path(self._folder)
        if folder.exists() and any(folder.iterdir()) and not (folder / _MARKER).exists():
            raise DefinitionError(
                Finding(
                    "FOLDER_NOT_EMPTY",
                    f'folder "{self._shown}" is not one of the demo',
                    hint="choose another with --folder",
                )
            )
        shutil.rmtree(folder, ignore_errors=True)
        templates = resources.files("evertable.define") / "templates"
        (folder / "data").mkdir(parents=True)
        (folder / _MARKER).write_text("made by `evertable demo`, which makes it anew each time\n")
        (folder / "data" / "adverts.csv").write_text((templates / "adverts.csv").read_text())
        (folder / "ads.yaml").write_text((templates / "demo.yaml").read_text())
        return open_pipeline(str(folder / "ads.yaml"))

    def _feed(self, feed: Feed) -> None:
        while self._feeding.is_set():
            feed.step(datetime.now(UTC))
            time.sleep(_STEP)

    def _run_and_kill(self, pipeline: Pipeline) -> None:
        begun = time.monotonic()
        child = _Child(self._folder)
        child.until(lambda: len(child.started) == len(pipeline.tables), "starting")
        self._terminal.with_time(
            f"{self._terminal.mark('fine')} {plural(len(pipeline.tables), 'table')} started",
            time.monotonic() - begun,
        )
        self._news("the first window closes when the watermark has passed its end", "fact")
        child.until(lambda: child.rows_out["cost_per_brand"] > 0, "closing a window")
        self._news(f"cost_per_brand: {plural(child.rows_out['cost_per_brand'], 'row')} out")
        child.until(lambda: min(child.batches.values()) >= _KILL_AFTER, "finishing batches")
        checkpoint = Checkpoint(Storage.of(pipeline).checkpoint("cost_per_brand"))
        child.until(lambda: checkpoint.last_offset() > checkpoint.last_commit(), "beginning one")
        child.kill()
        batch = checkpoint.last_offset()
        self._news(f"killed Spark (kill -9) in the middle of batch {batch}, on purpose", "look")

    def _run_again(self, pipeline: Pipeline) -> None:
        checkpoint = Checkpoint(Storage.of(pipeline).checkpoint("cost_per_brand"))
        batch = checkpoint.last_commit() + 1
        child = _Child(self._folder)
        child.until(lambda: min(child.batches.values()) >= 1, "recovering")
        self._news(f"restarted from batch {batch}: nothing lost, nothing written twice")
        child.until(lambda: min(child.batches.values()) >= _KILL_AFTER, "going on")
        child.stop()

    def _finish(self, pipeline: Pipeline) -> None:
        """Let the tables take what is left."""
        from evertable.run.runner import Runner

        finite = replace(
            pipeline,
            tables=tuple(
                replace(t, trigger=Trigger(kind="available_now")) for t in pipeline.tables
            ),
        )
        runner = Runner(finite, quick=True)
        runner.start()
        runner.wait()
        for run in runner.failed():
            assert run.finding is not None
            raise Refused(run.finding)

    def _compare(self, pipeline: Pipeline, closing: datetime) -> bool:
        """Whether each table has the rows that one batch query over all input gives."""
        equal = total = 0
        differing: list[str] = []
        for table in pipeline.tables:
            kept = self._kept(pipeline, table.name)
            wanted = batch_answer(pipeline, table.name, closing)
            total += len(wanted)
            equal += sum((kept & wanted).values()) if kept != wanted else len(wanted)
            if kept != wanted:
                differing.append(table.name)
        if differing:
            self._news(f"other rows than the batch query in {', '.join(differing)}", "broken")
            return False
        self._news(
            f"the same input as one batch query each: {equal:,} of {total:,} result rows are equal"
        )
        return True

    def _kept(self, pipeline: Pipeline, table: str) -> _Rows:
        from evertable.sinks.embedded.reader import query

        file = Storage.of(pipeline).table_file(table)
        return _Rows(query(f"SELECT * FROM {table}", {table: file}).rows)

    def _show_rows(self, pipeline: Pipeline) -> None:
        from evertable.sinks.embedded.reader import query

        file = Storage.of(pipeline).table_file("cost_per_brand")
        sql = (
            "SELECT strftime('%H:%M:%S', w_start) || '-' || strftime('%H:%M:%S', w_end) AS window,"
            " brand, cost, shown FROM cost_per_brand ORDER BY w_start DESC, brand LIMIT 3"
        )
        answer = query(sql, {"cost_per_brand": file})
        rows = [[str(v) for v in row] for row in answer.rows]
        self._terminal.table(answer.columns, rows, {2, 3})

    def _news(self, text: str, mark: str = "fine") -> None:
        clock = datetime.now().astimezone().strftime("%H:%M:%S")
        self._terminal.line(f"  {clock} {self._terminal.mark(mark)} {text}")


def batch_answer(pipeline: Pipeline, table: str, closing: datetime) -> _Rows:
    """The rows of a table, had all its input been there from the beginning."""
    from pyspark.sql import SparkSession

    from evertable.run import bounded
    from evertable.sinks.embedded.columns import columns_of, rows_of, sqlite_values
    from evertable.spark.schemas import SchemaStore

    active = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    frames = bounded.frames(
        active.newSession(), pipeline, SchemaStore(Storage.of(pipeline).schemas), whole=True
    )
    definition = pipeline.table(table)
    assert definition is not None
    frame = frames.of(definition.query, f'table "{table}"')
    if "w" in frame.columns:  # the window of the closing row itself never closes
        frame = frame.where(frame.w.end < closing)
    columns = columns_of(frame.schema)
    return _Rows(_typed(rows_of(sqlite_values(frame.toArrow(), columns)), columns))


def _typed(rows: Any, columns: Any) -> list[tuple[Any, ...]]:
    """As the reader of embedded tables would give them back."""
    import sqlite3

    from evertable.sinks.embedded.columns import register_collation, register_converters

    register_converters()
    connection = sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_DECLTYPES)
    register_collation(connection)
    connection.execute(f"CREATE TABLE t ({', '.join(c.sql for c in columns)})")
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
    return connection.execute("SELECT * FROM t").fetchall()


class _Rows(dict[tuple[Any, ...], int]):
    """Rows with how often each is there: their order means nothing."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        super().__init__()
        for row in rows:
            self[row] = self.get(row, 0) + 1

    def __and__(self, other: _Rows) -> dict[tuple[Any, ...], int]:
        return {row: min(n, other[row]) for row, n in self.items() if row in other}

    def __len__(self) -> int:
        return sum(self.values())


class _Child:
    """`evertable run` as a process group of its own, and what it says."""

    def __init__(self, folder: str) -> None:
        self.started: set[str] = set()
        self.batches: dict[str, int] = {}
        self.rows_out: dict[str, int] = {}
        self._failed: list[dict[str, Any]] = []
        self._errors = Path(folder, "demo-errors.log")
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evertable", "run", "ads.yaml", "--json"],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        for table in ("cost_per_brand", "clicked_impressions", "unique_clicks"):
            self.batches[table] = self.rows_out[table] = 0
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            event = json.loads(line)
            table = event.get("table", "")
            match event["event"]:
                case "started":
                    self.started.add(table)
                case "batch":
                    self.batches[table] += 1
                    self.rows_out[table] += event["rows_out"] or 0
                case "failed":
                    self._failed.append(event)

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_LIMIT
        while not done():
            if self._failed or self._process.poll() is not None:
                raise self._broken(what)
            if time.monotonic() > deadline:
                self.kill()
                raise EvertableError.of(
                    "DEMO_STUCK", f"nothing moved for {duration(_START_LIMIT)} while {what}"
                )
            time.sleep(0.01)

    def _broken(self, what: str) -> Refused:
        said = self._errors.read_text().strip()
        self.kill()
        return Refused(
            Finding(
                "DEMO_FAILED",
                f"the pipeline ended while {what}",
                detail=said or json.dumps(self._failed),
            )
        )

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
