"""Queries that Spark's own rules are about: what it refuses in a mode is what is said before."""

from __future__ import annotations

import uuid

import pandas as pd
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from evertable.spark.incremental import refusals_of
from evertable.spark.session import SOURCE_EVOLUTION, for_table

RANGE = "p.k = r.k AND rt BETWEEN lt - INTERVAL 5 MINUTES AND lt + INTERVAL 5 MINUTES"


class Counter(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame({"k": [key[0]]})

    def close(self):
        pass


def _with_state(key, rows, state):
    yield pd.DataFrame({"k": [key[0]]})


def _tws(frame, mode, time_mode="None"):
    return frame.groupBy("k").transformWithStateInPandas(Counter(), "k LONG", mode, time_mode)


def _pandas(frame, mode, timeout="NoTimeout"):
    state = "n LONG"
    return frame.groupBy("k").applyInPandasWithState(_with_state, "k LONG", state, mode, timeout)


def _window(frame, column="lt"):
    return frame.groupBy(F.window(column, "1 minute"), "k").count()


# s: a stream; m: one with a watermark; p, r: two with watermarks; t: a table that ends
QUERIES = {
    "rows": lambda s: s,
    "filter": lambda s: s.where("k > 1"),
    "rows of a table united": lambda s, t: s.union(t),
    "table first": lambda s, t: t.union(s),
    "union of two": lambda p, r: p.select("k").union(r.select("k")),
    "except": lambda s, t: s.exceptAll(t),
    "except a stream": lambda s, t: t.exceptAll(s),
    "except of two": lambda p, r: p.select("k").subtract(r.select("k")),
    "intersect": lambda s, t: s.intersect(t),
    "intersect of two": lambda p, r: p.select("k").intersect(r.select("k")),
    "aggregate": lambda s: s.groupBy("k").count(),
    "aggregate of all": lambda s: s.agg(F.count("*")),
    "aggregate of a marked key": lambda m: m.groupBy("lt").count(),
    "window": lambda m: _window(m),
    "window without a mark": lambda s: _window(s),
    "distinct aggregate": lambda s: s.groupBy("k").agg(F.count_distinct("v")),
    "distinct rows": lambda s: s.distinct(),
    "aggregate twice": lambda s: s.groupBy("k").count().groupBy("count").count(),
    "window twice": lambda m: _window(m).groupBy(F.window("window", "1 hour")).count(),
    "rollup": lambda s: s.rollup("k", "v").count(),
    "cube of a mark": lambda m: m.cube("lt", "k").count(),
    "pivot": lambda s: s.groupBy("k").pivot("v", [1, 2]).count(),
    "session": lambda m: m.groupBy(F.session_window("lt", "1 minute"), "k").count(),
    "session of all": lambda m: m.groupBy(F.session_window("lt", "1 minute")).count(),
    "sort": lambda s: s.orderBy("k"),
    "sort of groups": lambda s: s.groupBy("k").count().orderBy("count"),
    "sort within": lambda s: s.sortWithinPartitions("k"),
    "limit": lambda s: s.limit(3),
    "limit of groups": lambda s: s.groupBy("k").count().limit(3),
    "limit of sorted groups": lambda s: s.groupBy("k").count().orderBy("k").limit(3),
    "offset": lambda s: s.offset(2),
    "sample": lambda s: s.sample(0.5),
    "repartition": lambda s: s.repartition(3),
    "row numbers": lambda s: s.withColumn("n", F.row_number().over(Window.orderBy("k"))),
    "explode": lambda s: s.select(F.explode(F.array("k", "v")).alias("e")),
    "marked dedup": lambda m: m.dropDuplicates(["k", "lt"]),
    "dedup": lambda s: s.dropDuplicates(["k"]),
    "dedup within": lambda m: m.dropDuplicatesWithinWatermark(["k"]),
    "dedup within, unmarked": lambda s: s.dropDuplicatesWithinWatermark(["k"]),
    "dedup of groups": lambda m: _window(m).dropDuplicates(["window"]),
    "groups of dedup": lambda m: _window(m.dropDuplicates(["k", "lt"])),
    "join a table": lambda s, t: s.join(t, "k"),
    "left join a table": lambda s, t: s.join(t, "k", "left"),
    "right join a table": lambda s, t: s.join(t, "k", "right"),
    "full join a table": lambda s, t: s.join(t, "k", "full"),
    "semi join a table": lambda s, t: s.join(t, "k", "left_semi"),
    "anti join a table": lambda s, t: s.join(t, "k", "left_anti"),
    "table left join": lambda s, t: t.join(s, "k", "left"),
    "table right join": lambda s, t: t.join(s, "k", "right"),
    "table semi join": lambda s, t: t.join(s, "k", "left_semi"),
    "table anti join": lambda s, t: t.join(s, "k", "left_anti"),
    "join": lambda p, r: p.join(r, F.expr(RANGE)),
    "join without marks": lambda u, v: u.join(v, "k"),
    "left join": lambda p, r: p.join(r, F.expr(RANGE), "left"),
    "right join": lambda p, r: p.join(r, F.expr(RANGE), "right"),
    "full join": lambda p, r: p.join(r, F.expr(RANGE), "full"),
    "semi join": lambda p, r: p.join(r, F.expr(RANGE), "left_semi"),
    "anti join": lambda p, r: p.join(r, F.expr(RANGE), "left_anti"),
    "left join without a range": lambda p, r: p.join(r, F.expr("p.k = r.k"), "left"),
    "left join without marks": lambda u, v: u.join(v, "k", "left"),
    "full join without marks": lambda u, v: u.join(v, "k", "full"),
    "semi join without marks": lambda u, v: u.join(v, "k", "left_semi"),
    "join of groups": lambda p, r: _window(p).join(_window(r, "rt"), ["window", "k"]),
    "groups of a join": lambda p, r: _window(p.join(r, F.expr(RANGE)).select("p.k", "lt")),
    "groups of a left join": lambda p, r: _window(
        p.join(r, F.expr(RANGE), "left").select("p.k", "lt")
    ),
    "state, append": lambda s: _pandas(s, "append"),
    "state, update": lambda s: _pandas(s, "update"),
    "state with event time": lambda m: _pandas(m, "append", "EventTimeTimeout"),
    "state with event time, unmarked": lambda s: _pandas(s, "append", "EventTimeTimeout"),
    "state of groups": lambda m: _pandas(_window(m), "append"),
    "groups of state": lambda s: _pandas(s, "append").groupBy("k").count(),
    "groups of state, update": lambda s: _pandas(s, "update").groupBy("k").count(),
    "processor, append": lambda s: _tws(s, "Append"),
    "processor, update": lambda s: _tws(s, "Update"),
    "processor, complete": lambda s: _tws(s, "Complete"),
    "processor of event time": lambda m: _tws(m, "Append", "EventTime"),
    "groups of a processor": lambda s: _tws(s, "Update").groupBy("k").count(),
    "pandas by batch": lambda s: s.groupBy("k").applyInPandas(lambda rows: rows, s.schema),
}


@pytest.fixture(scope="module")
def session(spark):
    return for_table(spark, {SOURCE_EVOLUTION: "false", "spark.sql.shuffle.partitions": "1"})


def frames(session, query):
    """What a query is asked for by the names of its parameters."""

    def stream(time, alias):
        rate = session.readStream.format("rate").option("rowsPerSecond", 1).load()
        return rate.selectExpr(f"timestamp AS {time}", "value AS k", "value AS v").alias(alias)

    def marked(time, alias):
        return stream(time, alias).withWatermark(time, "1 minute").alias(alias)

    made = {
        "s": lambda: stream("lt", "s"), "u": lambda: stream("lt", "u"),
        "v": lambda: stream("rt", "v"), "m": lambda: marked("lt", "m"),
        "p": lambda: marked("lt", "p"), "r": lambda: marked("rt", "r"),
        "t": lambda: session.range(3).selectExpr("current_timestamp() AS lt", "id AS k", "id AS v"),
    }  # fmt: skip
    code = query.__code__
    return [made[name]() for name in code.co_varnames[: code.co_argcount]]


@pytest.mark.parametrize("name", QUERIES)
def test_spark_refuses_just_what_was_said(session, tmp_path, name):
    frame = QUERIES[name](*frames(session, QUERIES[name]))
    said = refusals_of(frame, "default")
    for mode in ("append", "update", "complete"):
        writer = frame.writeStream.format("memory").outputMode(mode)
        writer = writer.option("checkpointLocation", str(tmp_path / mode))
        reason = ""
        try:
            writer.queryName(f"u{uuid.uuid4().hex}").start().stop()
        except AnalysisException as e:
            reason = " ".join(str(e).partition(";\n")[0].split())
        assert said.get(mode, "")[:60] == reason[:60], mode
