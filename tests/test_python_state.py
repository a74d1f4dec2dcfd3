"""State in Python: processors with values, lists, maps, timers and TTL; pandas state; UDFs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import evertable as et
from evertable.run.events import Batch
from evertable.run.runner import Runner
from kit import wait_for

PROCESSOR = '''
from collections.abc import Iterator

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
import pandas as pd

from beside import shout


class Counter(StatefulProcessor):
    """Counts, remembers, and keeps the newest of each kind."""

    def init(self, handle):
        self.n = handle.getValueState("n", "n LONG")
        self.seen = handle.getListState("seen", "n INT")
        self.kinds = handle.getMapState("kinds", "kind STRING", "n INT")

    def handleInputRows(self, key, rows, timerValues):
        n = self.n.get()[0] if self.n.exists() else 0
        for row in rows:
            n += 1
            self.seen.appendValue((row.n,))
            self.kinds.updateValue((row.kind,), (row.n,))
        self.n.update((n,))
        seen = [value[0] for value in self.seen.get()]
        kinds = {k[0]: v[0] for k, v in self.kinds.iterator()}
        yield Row(k=shout(key[0]), n=n, seen=sorted(seen), kinds=kinds)

    def close(self):
        pass


class Late(StatefulProcessor):
    """Says a key ten seconds of event time after its last row."""

    def init(self, handle):
        self.handle = handle
        self.n = handle.getValueState("n", "n LONG")

    def handleInputRows(self, key, rows, timerValues):
        n = self.n.get()[0] if self.n.exists() else 0
        newest = 0
        for row in rows:
            n, newest = n + 1, max(newest, int(row.at.timestamp() * 1000))
        self.n.update((n,))
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(newest + 10_000)
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        n = self.n.get()[0]
        self.n.clear()
        yield Row(k=key[0], n=n)

    def close(self):
        pass


class Clock(StatefulProcessor):
    """Forgets a value by TTL, and has timers by the clock."""

    def init(self, handle):
        self.handle = handle
        self.n = handle.getValueState("n", "n LONG", 1)

    def handleInputRows(self, key, rows, timerValues):
        n = self.n.get()[0] if self.n.exists() else 0
        n += len(list(rows))
        self.n.update((n,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        yield Row(k=key[0], n=n, what="row")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(k=key[0], n=0, what="timer")

    def close(self):
        pass


class InPandas(StatefulProcessor):
    def init(self, handle):
        self.n = handle.getValueState("n", "n LONG")

    def handleInputRows(self, key, rows, timerValues):
        n = self.n.get()[0] if self.n.exists() else 0
        n += sum(len(frame) for frame in rows)
        self.n.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    def close(self):
        pass


def counted(s):
    return s.groupBy("k").transformWithState(
        Counter(), "k STRING, n LONG, seen ARRAY<INT>, kinds MAP<STRING, INT>", "Update", "None")


def late(s):
    return s.groupBy("k").transformWithState(Late(), "k STRING, n LONG", "Append", "EventTime")


def clock(s):
    return s.groupBy("k").transformWithState(
        Clock(), "k STRING, n LONG, what STRING", "Append", "ProcessingTime")


def in_pandas(s):
    return s.groupBy("k").transformWithStateInPandas(
        InPandas(), "k STRING, n LONG", "Update", "None")


def pandas_state(s):
    from pyspark.sql.streaming.state import GroupStateTimeout

    def count(key, frames, state):
        n = (state.get[0] if state.exists else 0) + sum(len(f) for f in frames)
        state.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    return s.groupBy("k").applyInPandasWithState(
        count, "k STRING, n LONG", "n LONG", "update", GroupStateTimeout.NoTimeout)


def maps(s):
    def each(frames):
        for frame in frames:
            yield frame.assign(k=frame["k"].map(shout))[["k", "n"]]

    def arrow(batches):
        for batch in batches:
            yield batch.slice(0)

    return s.mapInPandas(each, "k STRING, n INT").mapInArrow(arrow, "k STRING, n INT")


def udfs(s):
    from beside import shout  # also where a function imports it when it runs

    @F.udf("string")
    def lazily(text):
        from beside import shout
        return shout(text)

    @F.pandas_udf("long")
    def twice(n: pd.Series) -> pd.Series:
        return n * 2

    return s.select(lazily("k").alias("k"), twice("n").alias("n"))
'''
STREAM = """
name: p
streams:
  s:
    format: json
    path: in
    schema: "k STRING, n INT, kind STRING, at TIMESTAMP"
    options: {maxFilesPerTrigger: 1}
    MORE
tables:
  t:
    query: {python: "work.py:FUNCTION"}
    output_mode: MODE
    KEY
    trigger: available_now
"""


@pytest.fixture
def work(kit):
    kit.write("work.py", PROCESSOR)
    kit.write("beside.py", "def shout(text):\n    return text.upper() + '!'\n")
    yield kit
    for name in ("work", "beside"):
        sys.modules.pop(name, None)


def run(kit, function, mode="append", key="", more=""):
    text = STREAM.replace("FUNCTION", function).replace("MODE", mode).replace("MORE", more)
    kit.run(kit.yaml(text.replace("KEY", f"key: {key}" if key else "")))
    return kit.rows("t")


def row(k, n, kind="x", at="2026-01-01T00:00:00Z"):
    return f'{{"k":"{k}","n":{n},"kind":"{kind}","at":"{at}"}}'


def test_value_list_and_map_state_over_batches_and_restarts(work):
    work.feed("in", row("a", 1), row("b", 1))
    work.feed("in", row("a", 2, "y"))
    run(work, "counted", "update", "k")
    work.feed("in", row("a", 3, "x"))
    rows = run(work, "counted", "update", "k")
    assert rows == [
        ("A!", 3, [1, 2, 3], {"x": 3, "y": 2}),
        ("B!", 1, [1], {"x": 1}),
    ]


def test_timers_of_event_time_fire_when_the_watermark_has_passed(work):
    work.feed("in", row("a", 1, at="2026-01-01T00:00:00Z"), row("b", 1, at="2026-01-01T00:01:00Z"))
    work.feed("in", row("a", 2, at="2026-01-01T00:00:05Z"))
    rows = run(work, "late", more="watermark: {column: at, delay: 0 seconds}")
    assert rows == [("a", 2)], "a batch is judged by the watermark before it, so none was late"
    work.feed("in", row("c", 1, at="2026-01-01T00:02:00Z"))
    rows = run(work, "late", more="watermark: {column: at, delay: 0 seconds}")
    assert rows == [("a", 2), ("b", 1)]


def test_timers_by_the_clock_end_with_available_now(work):
    """By itself Spark would run batches without rows for ever."""
    work.feed("in", row("a", 1))
    work.feed("in", row("b", 1))
    rows = run(work, "clock")
    assert {r for r in rows if r[2] == "row"} == {("a", 1, "row"), ("b", 1, "row")}
    assert ("a", 0, "timer") in rows


def test_timers_by_the_clock_fire_without_rows_while_a_table_runs_on(work):
    work.feed("in", row("a", 1))
    text = STREAM.replace("FUNCTION", "clock").replace("MODE", "append").replace("MORE", "")
    text = text.replace("KEY", "").replace("available_now", "{processing_time: 100 milliseconds}")
    runner = Runner(work.yaml(text), spark=work.spark)
    runner.start()
    try:
        wait_for(lambda: ("a", 0, "timer") in rows_or_none(work))
    finally:
        runner.stop()


def rows_or_none(kit):
    try:
        return kit.rows("t")
    except et.EvertableError:
        return []


def test_ttl_forgets(work):
    work.feed("in", row("a", 1))
    run(work, "clock")
    work.feed("in", row("a", 1))  # more than a millisecond later
    rows = run(work, "clock")
    assert rows.count(("a", 1, "row")) == 2
    assert ("a", 2, "row") not in rows


@pytest.mark.parametrize("function", ["in_pandas", "pandas_state"])
def test_state_in_pandas(work, function):
    work.feed("in", row("a", 1), row("a", 2), row("b", 1))
    work.feed("in", row("a", 3))
    assert run(work, function, "update", "k") == [("a", 3), ("b", 1)]


def test_map_in_pandas_and_in_arrow(work):
    work.feed("in", row("a", 1), row("b", 2))
    assert run(work, "maps") == [("A!", 1), ("B!", 2)]


def test_udfs_and_modules_that_they_import_when_they_run(work, monkeypatch):
    work.feed("in", row("a", 1), row("b", 2))
    assert run(work, "udfs") == [("A!", 2), ("B!", 4)]


def test_the_python_door(work, monkeypatch):
    monkeypatch.syspath_prepend(str(work.folder))
    import work as module

    work.feed("in", row("a", 1), row("a", 2), row("b", 1))
    p = et.Pipeline("p", storage=str(work.folder / ".evertable"))
    p.stream(
        "s", format="json", path=str(work.folder / "in"), schema="k STRING, n INT, kind STRING"
    )
    p.table(output_mode="update", key="k", trigger=et.available_now())(module.counted)
    p.start(spark=work.spark)
    p.wait()
    assert sorted(r["n"] for r in p.table("counted").rows()) == [1, 2]


def test_update_without_a_key_says_what_to_do(work):
    work.feed("in", row("a", 1))
    with pytest.raises(et.EvertableError, match="KEY_MISSING"):
        run(work, "counted", "update")


def test_a_failing_processor_is_the_users_own_line(work):
    source = (work.folder / "work.py").read_text()
    broken = source.replace("            n += 1\n", "            n += row.nothing\n", 1)
    (work.folder / "work.py").write_text(broken)
    work.feed("in", row("a", 1))
    with pytest.raises(Exception, match="USER_CODE_FAILED") as e:
        run(work, "counted", "update", "k")
    line = broken.splitlines().index("            n += row.nothing") + 1
    assert e.value.finding.place.line == line


@pytest.mark.long
def test_modules_beside_the_pipeline_reach_executors_of_other_processes(work):
    work.feed("in", row("a", 1), row("b", 2))
    text = STREAM.replace("FUNCTION", "udfs").replace("MODE", "append").replace("MORE", "")
    text = text.replace("KEY", "").replace(
        "streams:",
        'spark: {master: "local-cluster[2,1,512]", spark.executor.memory: 512m}\nstreams:',
    )
    work.yaml(text)
    done = subprocess.run(
        [sys.executable, "-m", "evertable", "run", "--json"],
        cwd=work.folder, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert work.rows("t") == [("A!", 2), ("B!", 4)]


def test_counts_of_state_reach_the_events(work):
    work.feed("in", row("a", 1), row("b", 1))
    run(work, "counted", "update", "k")
    batches = [e for e in work.events if isinstance(e, Batch)]
    assert batches[-1].state_rows >= 2
