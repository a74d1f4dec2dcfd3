"""Queries of every stateful kind, with and without what bounds them, in SQL and in Python."""

from __future__ import annotations

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

A = "  a: {format: json, path: a, schema: 'k STRING, at TIMESTAMP, n INT, u STRING'MARK}\n"
B = "  b: {format: json, path: b, schema: 'k STRING, bt TIMESTAMP, m INT'MARK}\n"
A_MARKED = A.replace("MARK", ", watermark: {column: at, delay: 10 minutes}")
B_MARKED = B.replace("MARK", ", watermark: {column: bt, delay: 20 minutes}")
MARKED = A_MARKED + B_MARKED
PLAIN = (A + B).replace("MARK", "")
LEFT = A_MARKED + B.replace("MARK", "")
RANGE = "a.k = b.k AND bt BETWEEN at - INTERVAL 5 MINUTES AND at + INTERVAL 1 HOUR"
W = "window(at, '5 minutes')"

# name -> (SQL, mode, streams)
QUERIES = {
    "no state": ("SELECT k, n FROM a", "append", MARKED),
    "a filter": ("SELECT k FROM a WHERE n > 0", "update", MARKED),
    "window, append": (f"SELECT {W} AS w, k, count(*) AS c FROM a GROUP BY 1, 2", "append", MARKED),
    "window, update": (f"SELECT {W} AS w, k, count(*) AS c FROM a GROUP BY 1, 2", "update", MARKED),
    "window, complete": (f"SELECT {W} AS w, count(*) AS c FROM a GROUP BY 1", "complete", MARKED),
    "window, update, unmarked": (
        f"SELECT {W} AS w, count(*) AS c FROM a GROUP BY 1",
        "update",
        PLAIN,
    ),
    "window, complete, unmarked": (
        f"SELECT {W} AS w, sum(n) AS c FROM a GROUP BY 1",
        "complete",
        PLAIN,
    ),
    "sliding": (
        "SELECT window(at, '10 minutes', '5 minutes') AS w, max(n) AS c FROM a GROUP BY 1",
        "append",
        MARKED,
    ),
    "sliding, update": (
        "SELECT window(at, '30 minutes', '10 minutes') AS w, k, avg(n) AS c FROM a GROUP BY 1, 2",
        "update",
        MARKED,
    ),
    "event time as key": ("SELECT at, count(*) AS c FROM a GROUP BY at", "append", MARKED),
    "event time and key": ("SELECT at, k, count(*) AS c FROM a GROUP BY at, k", "update", MARKED),
    "key": ("SELECT k, count(*) AS c FROM a GROUP BY k", "update", MARKED),
    "key, unmarked": ("SELECT k, min(n) AS c FROM a GROUP BY k", "update", PLAIN),
    "key, complete": ("SELECT k, sum(n) AS c FROM a GROUP BY k", "complete", PLAIN),
    "two keys": ("SELECT k, u, sum(n) AS c FROM a GROUP BY k, u", "update", PLAIN),
    "hour of the event": (
        "SELECT date_trunc('HOUR', at) AS h, count(*) AS c FROM a GROUP BY 1",
        "update",
        MARKED,
    ),
    "day of the event": (
        "SELECT to_date(at) AS d, k, count(*) AS c FROM a GROUP BY 1, 2",
        "update",
        MARKED,
    ),
    "cast of the event": (
        "SELECT CAST(at AS LONG) AS s, count(*) AS c FROM a GROUP BY 1",
        "complete",
        MARKED,
    ),
    "window of another column": (
        "SELECT window(CAST(CAST(at AS STRING) AS TIMESTAMP), '5 minutes') AS w, count(*) AS c "
        "FROM a GROUP BY 1",
        "update",
        MARKED,
    ),
    "everything": ("SELECT count(*) AS c, sum(n) AS s FROM a", "update", PLAIN),
    "everything, complete": ("SELECT max(at) AS newest FROM a", "complete", MARKED),
    "cube": ("SELECT k, u, count(*) AS c FROM a GROUP BY CUBE (k, u)", "complete", PLAIN),
    "rollup of windows": (
        f"SELECT {W} AS w, k, count(*) AS c FROM a GROUP BY ROLLUP (1, k)",
        "complete",
        MARKED,
    ),
    "session": (
        "SELECT session_window(at, '5 minutes') AS w, k, count(*) AS c FROM a GROUP BY 1, 2",
        "append",
        MARKED,
    ),
    "session, complete": (
        "SELECT session_window(at, '5 minutes') AS w, k, sum(n) AS c FROM a GROUP BY 1, 2",
        "complete",
        MARKED,
    ),
    "session of its own gap": (
        "SELECT session_window(at, CASE WHEN n > 5 THEN '5 minutes' ELSE '9 minutes' END) AS w, k, "
        "count(*) AS c FROM a GROUP BY 1, 2",
        "append",
        MARKED,
    ),
    "distinct": ("SELECT DISTINCT k FROM a", "append", MARKED),
    "distinct, update": ("SELECT DISTINCT k, u FROM a", "update", PLAIN),
    "distinct with time": ("SELECT DISTINCT k, at FROM a", "append", MARKED),
    "distinct with time, update": ("SELECT DISTINCT at FROM a", "update", MARKED),
    "distinct with time, unmarked": ("SELECT DISTINCT k, at FROM a", "update", PLAIN),
    "dedup": (
        "SELECT k FROM a",
        "append",
        A_MARKED.replace("MARK", "")[:-2] + ", dedup: {keys: k}}\n",
    ),
    "dedup with time": (
        "SELECT k, at FROM a",
        "append",
        A_MARKED[:-2] + ", dedup: {keys: [k, at]}}\n",
    ),
    "dedup within watermark": (
        "SELECT k, at FROM a",
        "append",
        A_MARKED[:-2] + ", dedup: {keys: k, within: watermark}}\n",
    ),
    "dedup, unmarked": (
        "SELECT k, at FROM a",
        "append",
        A.replace("MARK", "")[:-2] + ", dedup: {keys: [k, at]}}\n",
    ),
    "inner join, range": (f"SELECT a.k FROM a JOIN b ON {RANGE}", "append", MARKED),
    "inner join, update": (f"SELECT a.k, m FROM a JOIN b ON {RANGE}", "update", MARKED),
    "inner join, no range": ("SELECT a.k FROM a JOIN b ON a.k = b.k", "append", MARKED),
    "inner join, unmarked": (f"SELECT a.k FROM a JOIN b ON {RANGE}", "append", PLAIN),
    "inner join, one mark": (f"SELECT a.k, n FROM a JOIN b ON {RANGE}", "append", LEFT),
    "inner join, after": ("SELECT a.k FROM a JOIN b ON a.k = b.k AND bt >= at", "append", MARKED),
    "inner join, before": ("SELECT a.k FROM a JOIN b ON a.k = b.k AND bt <= at", "append", MARKED),
    "inner join, some time after": (
        "SELECT a.k FROM a JOIN b ON a.k = b.k AND bt BETWEEN at + INTERVAL 30 MINUTES AND at + INTERVAL 1 HOUR",
        "append",
        MARKED,
    ),
    "inner join, shortly after": (
        "SELECT a.k FROM a JOIN b ON a.k = b.k AND bt > at + INTERVAL 5 MINUTES AND bt < at + INTERVAL 15 MINUTES",
        "append",
        MARKED,
    ),
    "inner join by time": ("SELECT a.k FROM a JOIN b ON a.k = b.k AND at = bt", "append", MARKED),
    "inner join by window": (
        "SELECT l.k FROM (SELECT *, window(at, '1 hour') AS w FROM a) l JOIN "
        "(SELECT *, window(bt, '1 hour') AS w FROM b) r ON l.k = r.k AND l.w = r.w",
        "append",
        MARKED,
    ),
    "left join": (f"SELECT a.k, m FROM a LEFT JOIN b ON {RANGE}", "append", MARKED),
    "right join": (f"SELECT b.k, n FROM a RIGHT JOIN b ON {RANGE}", "append", MARKED),
    "full join": (f"SELECT a.k, m FROM a FULL JOIN b ON {RANGE}", "append", MARKED),
    "semi join": (f"SELECT a.k FROM a LEFT SEMI JOIN b ON {RANGE}", "append", MARKED),
    "left join, one mark": (f"SELECT a.k, m FROM a LEFT JOIN b ON {RANGE}", "append", LEFT),
    "self-join": (
        "SELECT x.k FROM a x JOIN a y ON x.k = y.k AND y.at BETWEEN x.at AND x.at + "
        "INTERVAL 10 MINUTES AND x.n < y.n",
        "append",
        MARKED,
    ),
    "window of windows": (
        f"SELECT window(window_time(w), '1 hour') AS h, max(c) AS c FROM (SELECT {W} AS w, "
        "count(*) AS c FROM a GROUP BY 1) GROUP BY 1",
        "append",
        MARKED,
    ),
    "dedup, then window": (
        f"SELECT {W} AS w, count(*) AS c FROM (SELECT DISTINCT k, at FROM a) GROUP BY 1",
        "append",
        MARKED,
    ),
    "join, then window": (
        f"SELECT window(at, '1 hour') AS w, count(*) AS c FROM (SELECT at FROM a "
        f"JOIN b ON {RANGE}) GROUP BY 1",
        "append",
        MARKED,
    ),
    "session, then window": (
        "SELECT window(window_time(w), '1 hour') AS h, count(*) AS c FROM (SELECT "
        "session_window(at, '5 minutes') AS w, k FROM a GROUP BY 1, 2) GROUP BY 1",
        "append",
        MARKED,
    ),
    "union": (
        f"SELECT {W} AS w, count(*) AS c FROM (SELECT at, k FROM a UNION ALL SELECT at, u FROM "
        "a) GROUP BY 1",
        "append",
        MARKED,
    ),
    "union, one mark": (
        "SELECT k, count(*) AS c FROM (SELECT k, at FROM a UNION ALL SELECT k, bt "
        "FROM b) GROUP BY k",
        "update",
        LEFT,
    ),
    "limit": ("SELECT k FROM a LIMIT 5", "append", MARKED),
    "having": (
        f"SELECT {W} AS w, count(*) AS c FROM a GROUP BY 1 HAVING count(*) > 1",
        "append",
        MARKED,
    ),
    "approximate count": (
        f"SELECT {W} AS w, approx_count_distinct(k) AS c FROM a GROUP BY 1",
        "append",
        MARKED,
    ),
    "list of values": (
        f"SELECT {W} AS w, collect_list(n) AS c FROM a GROUP BY 1",
        "append",
        MARKED,
    ),
    "window with offset": (
        "SELECT window(at, '10 minutes', '10 minutes', '3 minutes') AS w, "
        "count(*) AS c FROM a GROUP BY 1",
        "append",
        MARKED,
    ),
    "window and case": (
        f"SELECT {W} AS w, CASE WHEN n > 5 THEN 'big' ELSE 'small' END AS size, "
        "count(*) AS c FROM a GROUP BY 1, 2",
        "append",
        MARKED,
    ),
}


# The same for what SQL has no words for: name -> (function, mode, streams, keys of the table)
def within_watermark(a):
    return a.dropDuplicatesWithinWatermark(["k", "u"]).select("k")


def within_watermark_of_two(a, b):
    return a.select("k", "at").union(b.select("k", "bt")).dropDuplicatesWithinWatermark(["k"])


def marked_in_code(a):
    return a.withWatermark("at", "90 seconds").groupBy(F.window("at", "1 minute"), "k").count()


def marked_too_late(a):
    counted = a.groupBy(F.window("at", "5 minutes")).count()
    return counted.withColumn("e", F.col("window.end")).withWatermark("e", "1 minute")


def distinct_then_window(a):
    return a.dropDuplicates(["k", "at"]).groupBy(F.window("at", "5 minutes")).count()


def window_then_join(a, b):
    counted = a.groupBy(F.window("at", "5 minutes"), "k").count()
    other = b.groupBy(F.window("bt", "5 minutes"), "k").agg(F.max("m").alias("m"))
    return counted.join(other, ["window", "k"])


def session_of_a_column(a):
    gap = F.concat(F.col("n").cast("string"), F.lit(" minutes"))
    return a.groupBy(F.session_window("at", gap), "k").count()


def two_windows(a):
    small = a.groupBy(F.window("at", "1 minute"), "k").agg(F.sum("n").alias("n"))
    return small.groupBy(F.window("window", "5 minutes"), "k").agg(F.sum("n").alias("n"))


def only_code(a):
    def same(batches):
        yield from batches

    return a.mapInPandas(same, "k STRING, at TIMESTAMP, n INT, u STRING")


def grouped_by_batch(a):
    return a.groupBy("k").applyInPandas(
        lambda rows: rows, "k STRING, at TIMESTAMP, n INT, u STRING"
    )


def union_of_two(a, b):
    both = a.select("k", "at").union(b.select("k", F.col("bt").alias("at")))
    return both.groupBy(F.window("at", "5 minutes")).count()


def deduped_then_joined(a, b):
    return a.dropDuplicates(["k", "at"]).alias("x").join(b.alias("y"), F.expr(RANGE_XY))


def three_streams(a, b, c):
    first = a.alias("x").join(b.alias("y"), F.expr(RANGE_XY)).select("x.k", "at", "m")
    return first.alias("p").join(
        c.alias("q"), F.expr("p.k = q.ck AND ct BETWEEN at AND at + INTERVAL 30 MINUTES")
    )


def state_in_pandas(a):
    def count(key, batches, state):
        n = (state.get[0] if state.exists else 0) + sum(len(rows) for rows in batches)
        state.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    schema = "k STRING, n LONG"
    return a.groupBy("k").applyInPandasWithState(count, schema, "n LONG", "append", "NoTimeout")


class Keeps(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n LONG")

    def handleInputRows(self, key, rows, timerValues):
        self.seen.update((1,))
        yield pd.DataFrame({"k": [key[0]]})

    def close(self):
        pass


class Forgets(Keeps):
    def handleInputRows(self, key, rows, timerValues):
        self.seen.update((1,))
        self.seen.clear()
        yield pd.DataFrame({"k": [key[0]]})


def processor_that_keeps(a):
    return a.groupBy("k").transformWithStateInPandas(Keeps(), "k STRING", "Update", "None")


def processor_that_forgets(a):
    return a.groupBy("k").transformWithStateInPandas(Forgets(), "k STRING", "Append", "None")


RANGE_XY = "x.k = y.k AND bt BETWEEN at - INTERVAL 5 MINUTES AND at + INTERVAL 1 HOUR"
C_MARKED = (
    "  c: {format: json, path: c, schema: 'ck STRING, ct TIMESTAMP', "
    "watermark: {column: ct, delay: 1 minute}}\n"
)
MAX = "\n    watermark_policy: max"
IN_PYTHON = {
    "dedup within watermark, in code": (within_watermark, "append", MARKED, ""),
    "dedup within watermark of a union": (within_watermark_of_two, "append", MARKED, ""),
    "watermark in code": (marked_in_code, "append", PLAIN, ""),
    "watermark too late": (marked_too_late, "update", PLAIN, ""),
    "distinct, then window": (distinct_then_window, "append", MARKED, ""),
    "windows joined": (window_then_join, "append", MARKED, ""),
    "session of a column": (session_of_a_column, "append", MARKED, ""),
    "window of a window": (two_windows, "append", MARKED, ""),
    "code alone": (only_code, "append", MARKED, ""),
    "code a batch": (grouped_by_batch, "append", MARKED, ""),
    "union of two": (union_of_two, "append", MARKED, ""),
    "union of two, max": (union_of_two, "append", MARKED, MAX),
    "dedup, then join": (deduped_then_joined, "append", MARKED, ""),
    "state in pandas": (state_in_pandas, "append", MARKED, ""),
    "processor that keeps": (processor_that_keeps, "update", PLAIN, ""),
    "processor that forgets": (processor_that_forgets, "append", MARKED, ""),
    "three streams": (three_streams, "append", MARKED + C_MARKED, ""),
}
NAMES = [*QUERIES, *IN_PYTHON]


def text(name):
    """The pipeline of one of them."""
    if name in IN_PYTHON:
        function, mode, streams, more = IN_PYTHON[name]
        query = f'{{python: "queries_to_foresee.py:{function.__name__}"}}'
    else:
        sql, mode, streams = QUERIES[name]
        query, more = f'"{sql}"', ""
    return (
        f"name: p\nstreams:\n{streams}tables:\n  t:\n    query: {query}\n"
        f"    output_mode: {mode}{more}\n    sink: {{format: noop}}\n"
    )
