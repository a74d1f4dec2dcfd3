"""What `check` finds in real queries: hazards with the line that they stand in, and nothing else."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from evertable.cli.check import reports_of
from evertable.run import analysis
from evertable.run.analysis import analyse
from evertable.spark import incremental
from evertable.spark import session as spark_session
from evertable.spark.schemas import SchemaStore

STREAMS = """
    name: p
    streams:
      a: {format: json, path: a, schema: "k STRING, at TIMESTAMP, n INT, u STRING",
          watermark: {column: at, delay: 10 minutes}}
      b: {format: json, path: b, schema: "k STRING, bt TIMESTAMP, m INT",
          watermark: {column: bt, delay: 20 minutes}}
      u: {format: json, path: a, schema: "k STRING, at TIMESTAMP, n INT, u STRING"}
      z: {format: json, path: a, schema: "k STRING, at TIMESTAMP",
          watermark: {column: at, delay: 0 seconds}}
      talk: {format: socket, options: {host: localhost, port: 9}}
    statics:
      small: {format: csv, path: small.csv, schema: "k STRING, brand STRING"}
    views:
      hours: |
        SELECT k,
          date_trunc('HOUR', at) AS h
        FROM a
    tables:
      t:
        output_mode: MODE
        trigger: TRIGGER
        sink: SINK
        query: """

CODE = """
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

RANGE = "x.k = y.k AND bt BETWEEN at AND at + INTERVAL 1 HOUR"


def twice(a):
    return a.withWatermark("at", "1 minute").groupBy(F.window("at", "5 minutes")).count()


def two_times(a, b):
    return a.alias("x").join(b.alias("y"), F.expr(RANGE)).groupBy(F.window("at", "1 day"), "bt").count()


def dedup_of_groups(a):
    return a.groupBy("k", F.window("at", "5 minutes")).count().dropDuplicates(["k", "window"])


def dedup_elsewhere(a):
    return a.groupBy("k", F.window("at", "5 minutes")).count().dropDuplicates(["k"])


def marked_late(u):
    counted = u.groupBy(F.window("at", "5 minutes")).count()
    return counted.withColumn("e", F.col("window.end")).withWatermark("e", "1 minute")


def half_marked(a, u):
    both = a.select("k", "at").union(u.select("k", "at"))
    return both.dropDuplicates(["k", "at"])


def by_batch(a):
    return a.groupBy("k").applyInPandas(lambda rows: rows, a.schema)


class Keeps(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n LONG")
        self.aged = handle.getMapState("aged", "k STRING", "n LONG", 60_000)

    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame({"k": [key[0]]})

    def close(self):
        pass


class Forgets(Keeps):
    def handleInputRows(self, key, rows, timerValues):
        self.seen.clear()
        yield pd.DataFrame({"k": [key[0]]})


def keeps(u):
    return u.groupBy("k").transformWithStateInPandas(Keeps(), "k STRING", "Update", "eventTime")


def forgets(a):
    return a.groupBy("k").transformWithStateInPandas(Forgets(), "k STRING", "Update", "processingTime")


def timeout_without_a_mark(u):
    def count(key, rows, state):
        yield pd.DataFrame({"k": [key[0]]})

    return u.groupBy("k").applyInPandasWithState(count, "k STRING", "n LONG", "append", "EventTimeTimeout")
"""
W = "window(at, '5 minutes')"

# the query (SQL, or a function of CODE), more of the table, and what is said: code, line of SQL
CASES = [
    (f"SELECT {W} AS w, count(*) AS c FROM a GROUP BY 1", {}, []),
    ("SELECT date_trunc('HOUR', at) AS h, count(*) AS c\n  FROM a\n  GROUP BY 1",
     {"mode": "update"}, [("WATERMARK_UNUSED", 3)]),
    ("SELECT h, count(*) AS c FROM hours GROUP BY h", {"mode": "update"},
     [("WATERMARK_UNUSED", 1)]),
    (f"SELECT {W} AS w, count(*) AS c\n  FROM u\n  GROUP BY 1", {"mode": "update"},
     [("STATE_UNBOUNDED", 3)]),
    ("SELECT a.k\n  FROM a JOIN b\n  ON a.k = b.k", {}, [("WATERMARK_UNUSED", 2)] * 2),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k\n  AND bt >= at", {}, [("WATERMARK_UNUSED", 1)]),
    ("SELECT k,\n  count(*) AS c FROM a\n  GROUP BY k", {"mode": "update"}, [("KEYS_FOR_EVER", 3)]),
    (f"SELECT {W} AS w, count(*) AS c FROM a GROUP BY 1", {"mode": "complete"},
     [("WATERMARK_IDLE", 1)]),
    (f"SELECT {W} AS w, count(*) AS c FROM a\n  WHERE n > 3 GROUP BY 1", {},
     [("FILTER_MOVED", 1)]),
    (f"SELECT {W} AS w, count_if(n > 3) AS c FROM a GROUP BY 1", {}, []),
    (f"SELECT {W} AS w, k, count(*) AS c FROM z GROUP BY 1, 2", {}, [("WATERMARK_ZERO", 1)]),
    ("SELECT k,\n  CAST(u AS INT) AS n,\n  try_cast(u AS INT) AS o FROM a", {},
     [("VALUE_MAY_FAIL", 2)]),
    ("SELECT k FROM a\n  WHERE u = 5", {}, [("VALUE_MAY_FAIL", 2)]),
    ("SELECT to_timestamp(u) AS t FROM a", {}, [("VALUE_MAY_FAIL", 1)]),
    ("SELECT split(u, ',')[3] AS x FROM a", {}, [("VALUE_MAY_FAIL", 1)]),
    ("SELECT n / length(u) AS x FROM a", {}, [("VALUE_MAY_FAIL", 1)]),
    (f"SELECT {W} AS w, sum(n) / count(*) AS x FROM a GROUP BY 1", {}, []),
    ("SELECT k, current_timestamp() AS seen FROM a", {}, []),
    (f"SELECT {W} AS w, max(current_timestamp()) AS m FROM a GROUP BY 1", {},
     [("CLOCK_IN_STATE", 1)]),
    ("SELECT k, uuid() AS id FROM a", {}, [("CHANCE", 1)]),
    ("SELECT k FROM a LIMIT 5", {}, [("LIMIT_ENDS", 1)]),
    ("SELECT k FROM a UNION ALL SELECT u FROM a", {}, [("STREAM_TWICE", 1)]),
    ("SELECT value FROM talk", {}, [("SOURCE_FORGETS", 1)]),
    ("SELECT a.k, brand FROM a JOIN small USING (k)", {}, []),
    ("twice", {}, [("WATERMARK_TWICE", None)]),
    ("two_times", {}, [("EVENT_TIME_TWICE", None)]),
    ("dedup_of_groups", {}, [("DEDUP_AFTER_AGGREGATE", None)]),
    ("dedup_elsewhere", {}, [("WATERMARK_UNUSED", None)]),
    ("marked_late", {"mode": "update"}, [("STATE_UNBOUNDED", None), ("WATERMARK_TOO_LATE", None)]),
    ("half_marked", {}, [("UNION_UNMARKED", None)]),
    ("by_batch", {}, [("ONE_BATCH_AT_A_TIME", None)]),
    ("keeps", {"mode": "update"}, [("TIMERS_NEVER_FIRE", None), ("CODE_KEEPS_FOR_EVER", None)]),
    ("forgets", {"mode": "update", "trigger": "available_now"}, [("TIMERS_WAIT", None)]),
    ("timeout_without_a_mark", {}, [("WATERMARK_MISSING", None)]),
]  # fmt: skip


def checked(kit, query, mode="append", trigger="default", sink="noop"):
    for folder in "ab":
        (kit.folder / folder).mkdir(exist_ok=True)
    kit.write("small.csv", "k,brand\n")
    kit.write("code.py", CODE)
    text = STREAMS.replace("MODE", mode).replace("TRIGGER", trigger).replace("SINK", sink)
    if " " in query:
        text += "|\n          " + query.replace("\n  ", "\n            ")
    else:
        text += f'{{python: "code.py:{query}"}}'
    pipeline = kit.yaml(text)
    confs = spark_session.all_confs(dict(pipeline.spark), logs=str(kit.folder / "logs"))
    schemas = SchemaStore(str(kit.folder / "schemas"), keep=False)
    return pipeline, analyse(kit.spark, confs, pipeline, schemas)[0]


@pytest.mark.parametrize(("query", "more", "said"), CASES, ids=lambda v: str(v)[:50])
def test_a_hazard_is_said_with_its_line(kit, query, more, said):
    _, report = checked(kit, query, **more)
    found = [f for f in report.findings if f.code != "SOURCE_UNNAMED"]
    assert sorted(f.code for f in found) == sorted(code for code, _ in said)
    lines = {(f.code, f.place.line) for f in found}
    begins = next(
        n for n, line in enumerate((kit.folder / "p.yaml").read_text().splitlines(), 1)
        if "query: " in line
    ) + 1  # fmt: skip
    for code, line in said:
        if line is not None:
            assert (code, begins + line - 1) in lines


def test_a_planner_that_answers_otherwise_is_said_and_nothing_else_fails(kit, monkeypatch):
    monkeypatch.setattr(incremental, "execution_of", lambda frame, mode: None)
    _, report = checked(kit, f"SELECT {W} AS w, count(*) AS c FROM a GROUP BY 1")
    assert [(f.code, f.severity) for f in report.findings] == [("PLAN_UNKNOWN", "note")]
    assert report.analysed.frame.isStreaming


def test_a_planner_that_says_something_wrong_is_found_by_asking_what_is_known(kit, monkeypatch):
    monkeypatch.setattr("evertable.spark.state_operators._window", lambda node: (1, 1))
    _, report = checked(kit, f"SELECT {W} AS w, count(*) AS c FROM a GROUP BY 1")
    (finding,) = report.findings
    assert finding.code == "PLAN_UNKNOWN"
    assert "in the place of" in finding.detail


def test_run_refuses_what_check_calls_an_error(kit):
    pipeline, _ = checked(kit, "dedup_of_groups")
    with pytest.raises(Exception, match="DEDUP_AFTER_AGGREGATE"):
        kit.run(pipeline)
    assert not list(kit.folder.glob(".evertable/**/offsets"))


def tree(folder):
    return {
        str(file.relative_to(folder)): (file.stat().st_mtime_ns, file.stat().st_size)
        for file in Path(folder).rglob("*")
    }


def test_check_leaves_everything_as_it_is(kit, monkeypatch):
    pipeline, _ = checked(kit, f"SELECT {W} AS w, k, count(*) AS c FROM a GROUP BY 1, 2")
    from evertable.run.forecasting import Asked

    shutil.rmtree(kit.folder / "logs", ignore_errors=True)
    before = tree(kit.folder)
    monkeypatch.setattr("evertable.run.opening.open_spark", lambda *a, **k: kit.spark)
    reports, _, forecasts = reports_of(pipeline, Asked())
    assert reports[0].analysed
    assert forecasts[0].operators[0].why == "stream a has no files yet"
    assert tree(kit.folder) == before
    assert not kit.spark.streams.active


@pytest.mark.alone
def test_twenty_tables_are_checked_in_a_few_seconds(kit):
    (kit.folder / "a").mkdir()
    tables = "\n".join(
        f"""      t{n}:
        query: "SELECT window(at, '{n + 1} minutes') AS w, k, count(*) AS c, max(n) AS m
                FROM a WHERE n > {n} GROUP BY 1, 2"
        sink: noop"""
        for n in range(20)
    )
    head = STREAMS[: STREAMS.index("      b:")] + "    tables:\n"
    pipeline = kit.yaml(head + tables)
    confs = spark_session.all_confs(dict(pipeline.spark), logs=str(kit.folder / "logs"))
    schemas = SchemaStore(str(kit.folder / "schemas"), keep=False)
    analyse(kit.spark, confs, pipeline, schemas)  # the JVM compiles what it does often
    took = []

    def timed(*args, **kwargs):
        begun = time.monotonic()
        try:
            return real(*args, **kwargs)
        finally:
            took.append(time.monotonic() - begun)

    real = analysis.analyse_table
    begun = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "analyse_table", timed)
        assert all(report.analysed for report in analyse(kit.spark, confs, pipeline, schemas))
    whole = time.monotonic() - begun
    assert sorted(took)[10] < 0.5
    assert whole < 3
