"""Edits of running tables: what stood in the file, and what stands there now.

`BASES` are pipelines of one table `t`; an edit replaces pieces of their text. Streams `a` and `b`
are folders of JSON, fed before and after the edit.
"""

from __future__ import annotations

from typing import NamedTuple

STREAMS = """
name: p
streams:
  a: {format: json, path: a, schema: "id INT, k STRING, u STRING, at TIMESTAMP, n INT, m INT, x DOUBLE", options: {maxFilesPerTrigger: 1}MARK_A}
  b: {format: json, path: b, schema: "bid INT, bk STRING, bu STRING, bt TIMESTAMP, v INT, w INT", options: {maxFilesPerTrigger: 1}MARK_B}
  c: {format: json, path: c, schema: "id INT, k STRING, u STRING, at TIMESTAMP, n INT, m INT, x DOUBLE", options: {maxFilesPerTrigger: 1}}
statics:
  s: {format: csv, path: s1.csv, schema: "sk STRING, brand STRING", options: {header: true}}
"""
MARKED = STREAMS.replace("MARK_A", ", watermark: {column: at, delay: 10 minutes}").replace(
    "MARK_B", ", watermark: {column: bt, delay: 10 minutes}"
)
PLAIN = STREAMS.replace("MARK_A", "").replace("MARK_B", "")


def table(sql: str, mode: str = "append", more: str = "") -> str:
    return f'tables:\n  t:\n    query: "{sql}"\n    output_mode: {mode}\n{more}'


def python(function: str, mode: str = "append", more: str = "") -> str:
    return f'tables:\n  t:\n    query: {{python: "MODULE:{function}"}}\n    output_mode: {mode}\n{more}'


RANGE = "k = bk AND bt BETWEEN at - INTERVAL 5 MINUTES AND at + INTERVAL 5 MINUTES"
BASES = {
    "stateless": MARKED + table("SELECT id, k, n FROM a WHERE n > 2"),
    "chosen": PLAIN + table("SELECT id FROM a WHERE k IN ('x', 'y')"),
    "view": MARKED
    + "views:\n  big: SELECT * FROM a WHERE n > 2\n"
    + table("SELECT id, k FROM big"),
    "keyed": PLAIN + table("SELECT k, sum(n) AS sn, sum(m) AS sm FROM a GROUP BY k", "update"),
    "chosen groups": PLAIN
    + table("SELECT k, sum(n) AS sn FROM a WHERE k <> 'y' GROUP BY k", "update"),
    "two keys": PLAIN
    + table("SELECT k, u, sum(n) AS sn, count(*) AS c FROM a GROUP BY k, u", "update"),
    "complete": PLAIN + table("SELECT k, min(n) AS v FROM a GROUP BY k", "complete"),
    "global": PLAIN + table("SELECT sum(n) AS sn, sum(m) AS sm FROM a", "update"),
    "window": MARKED
    + table("SELECT window(at, '10 minutes') AS w, k, sum(n) AS v FROM a GROUP BY 1, 2"),
    "window, update": MARKED
    + table("SELECT window(at, '10 minutes') AS w, k, sum(n) AS v FROM a GROUP BY 1, 2", "update"),
    "sliding": MARKED
    + table("SELECT window(at, '10 minutes', '5 minutes') AS w, count(*) AS c FROM a GROUP BY 1"),
    "session": MARKED
    + table("SELECT session_window(at, '5 minutes') AS w, k, count(*) AS c FROM a GROUP BY 1, 2"),
    "dedup": MARKED + table("SELECT id, k FROM once").replace("tables:", "tables:"),
    "dedup within": MARKED + table("SELECT id, k FROM once"),
    "distinct": MARKED + table("SELECT DISTINCT k, u, at FROM a"),
    "join": MARKED + table(f"SELECT id, bid, n, v FROM a JOIN b ON {RANGE}"),
    "left join": MARKED + table(f"SELECT id, bid FROM a LEFT JOIN b ON {RANGE}"),
    "semi join": MARKED + table(f"SELECT id, n FROM a LEFT SEMI JOIN b ON {RANGE}"),
    "static join": PLAIN
    + table("SELECT brand, sum(n) AS sn FROM a JOIN s ON k = sk GROUP BY brand", "update"),
    "static rows": PLAIN + table("SELECT id, brand FROM a JOIN s ON k = sk"),
    "union": PLAIN + table("SELECT id, n FROM a UNION ALL SELECT bid, v FROM b"),
    "union, grouped": PLAIN
    + table(
        "SELECT k, sum(n) AS sn FROM (SELECT k, n FROM a UNION ALL SELECT bk, v FROM b) GROUP BY k",
        "update",
    ),
    "two groups": PLAIN
    + table(
        "SELECT k, sum(n) AS s FROM a GROUP BY k UNION ALL SELECT bk, sum(v) FROM b GROUP BY bk",
        "update",
        "    sink: memory\n",
    ),
    "window of windows": MARKED
    + table(
        "SELECT window(window_time(w), '20 minutes') AS h, max(c) AS c FROM (SELECT window(at, "
        "'5 minutes') AS w, count(*) AS c FROM a GROUP BY 1) GROUP BY 1"
    ),
    "dedup, window": MARKED
    + table("SELECT window(at, '10 minutes') AS w, count(*) AS c FROM once GROUP BY 1"),
    "day": MARKED + table("SELECT to_date(at) AS d, sum(n) AS v FROM a GROUP BY 1", "update"),
    "limit": PLAIN + table("SELECT id FROM a LIMIT 5"),
    "cube": PLAIN + table("SELECT k, u, sum(n) AS v FROM a GROUP BY CUBE (k, u)", "complete"),
    "udf": PLAIN + python("rows"),
    "udf key": PLAIN + python("groups", "update"),
    "pandas state": PLAIN + python("kept", "update", "    key: k\n"),
    "processor": PLAIN + python("processed", "update", "    key: k\n"),
    "mapped": PLAIN + python("mapped"),
    "likes": PLAIN
    + table(
        "SELECT k, count(*) AS c FROM a WHERE concat(u, '_', n) LIKE ANY ('y_%', 'x_3%') GROUP BY k",
        "update",
    ),
    "values": PLAIN
    + table(
        "SELECT k, sum(n) AS v FROM a WHERE n > (SELECT max(x) FROM VALUES (5), (4) AS t(x)) GROUP BY k",
        "update",
    ),
    "week": PLAIN
    + table(
        "SELECT k, count(*) AS c FROM a WHERE at < current_timestamp() - INTERVAL 7 DAYS GROUP BY k",
        "update",
    ),
    "udf inside": PLAIN + python("inside"),
    "clock": MARKED + table("SELECT id, current_timestamp() > at AS past FROM a"),
    "subquery": PLAIN
    + table("SELECT k, sum(n) AS v FROM a WHERE n > (SELECT count(*) FROM s) GROUP BY k", "update"),
    "arrays": PLAIN
    + table(
        "SELECT k, sum(transform(array(n, m), (e, i) -> e)[1]) AS v FROM a GROUP BY k", "update"
    ),
    "csv": (
        'name: p\nstreams:\n  a: {format: csv, path: csv, schema: "k STRING, u STRING, n INT, m INT", '
        "options: {maxFilesPerTrigger: 1}}\n"
        + table("SELECT k, sum(n) AS v FROM a GROUP BY k", "update")
    ),
    "decoded": (
        "name: p\nstreams:\n  a:\n    format: text\n    path: raw\n"
        "    options: {maxFilesPerTrigger: 1}\n"
        "    decode: {format: json, schema: 'id INT, k STRING, n INT, m INT'}\n"
        + table("SELECT k, sum(n) AS v FROM a GROUP BY k", "update")
    ),
}
ONCE = '\n  once: {format: json, path: a, schema: "id INT, k STRING, u STRING, at TIMESTAMP, n INT, m INT, x DOUBLE", options: {maxFilesPerTrigger: 1}, watermark: {column: at, delay: 10 minutes}, dedup: {keys: [id, at]}}'
for _name in ("dedup", "dedup within", "dedup, window"):
    _once = ONCE if _name != "dedup within" else ONCE.replace(
        "keys: [id, at]", "keys: [id], within: watermark")  # fmt: skip
    BASES[_name] = BASES[_name].replace("\nstatics:", _once + "\nstatics:")

CODE = '''
"""Functions of a user's."""
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql import Row
from HELPER import shout

FACTOR = 2


@F.udf("string")
def norm(x):
    """Upper case."""
    return shout(x)


@F.udf("int")
def times(n, by=FACTOR):
    return n * by


def scaled(by):
    @F.udf("int")
    def f(n):
        return n * by
    return f


def rows(a):
    return a.select("id", norm("k").alias("k"), times("n").alias("n"))


def groups(a):
    return a.groupBy(norm("k").alias("k")).agg(F.sum(scaled(3)("n")).alias("v"))


def mapped(a):
    def double(frames):
        for frame in frames:
            frame["n"] = frame["n"] * 2
            yield frame
    return a.select("id", "n").mapInPandas(double, "id INT, n INT")


def kept(a):
    def add(key, frames, state):
        total, number = state.get if state.exists else (0, 0)
        for frame in frames:
            total += int(frame["n"].sum())
            number += len(frame)
        state.update((total, number))
        yield pd.DataFrame({"k": [key[0]], "total": [total], "number": [number]})
    return a.groupBy("k").applyInPandasWithState(
        add, "k STRING, total LONG, number LONG", "total LONG, number LONG", "update", "NoTimeout")


class Totals(StatefulProcessor):
    """Adds up."""

    def init(self, handle):
        self.total = handle.getValueState("total", "n LONG")
        self.seen = handle.getMapState("seen", "id INT", "n INT")

    def handleInputRows(self, key, rows, timerValues):
        total = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            total += row.n
            self.seen.updateValue((row.id,), (row.n,))
        self.total.update((total,))
        yield Row(k=key[0], total=total)

    def close(self):
        pass


@F.udf("string")
def later(x):
    import HELPER

    return HELPER.shout(x)


def inside(a):
    return a.select("id", later("k").alias("k"))


def processed(a):
    return a.groupBy("k").transformWithState(Totals(), "k STRING, total LONG", "update", "None")
'''
HELPER = """
def shout(x):
    return x.upper()
"""


class Edit(NamedTuple):
    """`verdict` is what is to be said; `confs` are Spark's, from the edit on."""

    base: str
    verdict: str
    text: tuple[tuple[str, str], ...] = ()
    code: tuple[tuple[str, str], ...] = ()
    helper: tuple[tuple[str, str], ...] = ()
    confs: tuple[tuple[str, str], ...] = ()


def edit(base: str, verdict: str, *text: tuple[str, str], **more: object) -> Edit:
    return Edit(base, verdict, text, **more)  # type: ignore[arg-type]


SUM = "sum(n) AS sn, sum(m) AS sm"
EDITS = {
    # -- the same thing, written otherwise
    "nothing": edit("keyed", "same"),
    "a comment in SQL": edit("keyed", "same", ("FROM a", "FROM a /* clicks */")),
    "an alias of the stream": edit("stateless", "same", ("SELECT id, k, n FROM a WHERE n", "SELECT q.id, q.k, q.n FROM a AS q WHERE q.n")),
    "a view around the stream": edit("keyed", "same", ("tables:", "views:\n  plain: SELECT * FROM a\ntables:"), ("FROM a GROUP", "FROM plain GROUP")),
    "a view that is taken away": edit("view", "same", ("FROM big", "FROM a WHERE n > 2")),
    "a subquery": edit("two keys", "same", ("FROM a GROUP", "FROM (SELECT k, u, n FROM a) AS q GROUP")),
    "a common table expression": edit("keyed", "same", ('"SELECT k', '"WITH q AS (SELECT * FROM a) SELECT k'), ("FROM a GROUP", "FROM q GROUP")),
    "count(*) as sum(1)": edit("two keys", "same", ("count(*)", "sum(1)")),
    "count(*) as count(1)": edit("sliding", "same", ("count(*)", "count(1)")),
    "conditions in another order": edit("stateless", "same", ("n > 2", "2 < n")),
    "between": edit("join", "same", ("bt BETWEEN at - INTERVAL 5 MINUTES AND at + INTERVAL 5 MINUTES", "bt >= at - INTERVAL 5 MINUTES AND bt <= at + INTERVAL 5 MINUTES")),
    "an interval in other words": edit("join", "same", ("at + INTERVAL 5 MINUTES", "at + INTERVAL 300 SECONDS")),
    "a window in other words": edit("window", "same", ("'10 minutes'", "'600 seconds'")),
    "group by names": edit("two keys", "same", ("GROUP BY k, u", "GROUP BY 1, 2")),
    "key in parentheses": edit("keyed", "same", ("GROUP BY k", "GROUP BY (k)")),
    "if as case": edit("stateless", "same", ("n > 2", "CASE WHEN n > 2 THEN true ELSE false END")),
    "in as or": edit("chosen", "same", ("k IN ('x', 'y')", "k = 'y' OR k = 'x'")),
    "keys of groups are chosen": edit("keyed", "note", ("FROM a GROUP", "FROM a WHERE k IN ('x', 'z') GROUP")),
    "using a having that is always true": edit("window", "same", ("GROUP BY 1, 2", "GROUP BY 1, 2 HAVING true")),
    "a column that nobody uses": edit("keyed", "same", ("FROM a GROUP", "FROM (SELECT *, n + 1 AS more FROM a) GROUP")),
    # -- stateless
    "another filter, no state": edit("stateless", "safe", ("n > 2", "n > 4")),
    "no filter, no state": edit("stateless", "safe", (" WHERE n > 2", "")),
    "another value, no state": edit("stateless", "safe", ("k, n FROM", "k, n + 1 AS n FROM")),
    "one more column, no state": edit("stateless", "safe", ("k, n FROM", "k, n, m FROM")),
    "one column less, no state": edit("stateless", "note", ("id, k, n FROM", "id, n FROM")),
    "a column has another name, no state": edit("stateless", "note", ("k, n FROM", "k, n AS number FROM")),
    "columns in another order, no state": edit("stateless", "safe", ("id, k, n FROM", "k, id, n FROM")),
    "another watermark, no state": edit("stateless", "same", ("column: at, delay: 10 minutes", "column: at, delay: 1 hour")),
    "another static, no state": edit("static rows", "safe", ("path: s1.csv", "path: s2.csv")),
    "a view has another filter, no state": edit("view", "safe", ("n > 2", "n > 3")),
    # -- above state
    "a value made of a sum": edit("two keys", "note", ("sum(n) AS sn, count(*) AS c", "sum(n) * 10 AS sn, count(*) AS c")),
    "a mean of what is there": edit("two keys", "safe", ("count(*) AS c", "count(*) AS c, sum(n) / count(*) AS mean")),
    "a sum has another name": edit("keyed", "note", ("sum(n) AS sn", "sum(n) AS total")),
    "a sum is left out above": edit("window", "safe", ("sum(n) AS v FROM", "sum(n) AS v, sum(n) * 2 AS twice FROM")),
    "a filter of groups": edit("window", "safe", ("GROUP BY 1, 2", "GROUP BY 1, 2 HAVING sum(n) > 5")),
    "another value after a join": edit("join", "safe", ("n, v FROM", "n, v * 10 AS v FROM")),
    "sums turned about by an outer query": edit("keyed", "corrupts", (f'"SELECT k, {SUM} FROM a GROUP BY k"', f'"SELECT k, sm, sn FROM (SELECT k, {SUM} FROM a GROUP BY k)"')),
    # -- what is computed of groups
    "two sums change places": edit("keyed", "corrupts", (SUM, "sum(m) AS sm, sum(n) AS sn")),
    "another column is added up": edit("keyed", "corrupts", ("sum(n) AS sn", "sum(id) AS sn")),
    "two sums of no group change places": edit("global", "corrupts", (SUM, "sum(m) AS sm, sum(n) AS sn")),
    "min to max": edit("complete", "corrupts", ("min(n)", "max(n)")),
    "sum to count": edit("window", "corrupts", ("sum(n) AS v", "count(n) AS v")),
    "an aggregate more": edit("keyed", "fails", (SUM, f"{SUM}, count(*) AS c")),
    "an aggregate less": edit("keyed", "fails", (SUM, "sum(n) AS sn")),
    "sum to average": edit("window", "fails", ("sum(n) AS v", "avg(n) AS v")),
    "a sum of doubles": edit("keyed", "fails", ("sum(n) AS sn", "sum(x) AS sn")),
    "a sum of twice the value": edit("keyed", "corrupts", ("sum(n) AS sn", "sum(n * 2) AS sn")),
    "a sum with a condition": edit("keyed", "corrupts", ("sum(n) AS sn", "sum(n) FILTER (WHERE n > 3) AS sn")),
    "a count with a condition": edit("sliding", "corrupts", ("count(*)", "count_if(n > 3)")),
    "first to last": edit("complete", "corrupts", ("min(n) AS v", "max(m) AS v")),
    # -- keys
    "a key of the same type": edit("keyed", "corrupts", ("SELECT k, sum", "SELECT u AS k, sum"), ("GROUP BY k", "GROUP BY u")),
    "a key of another type": edit("keyed", "fails", ("SELECT k, sum", "SELECT id AS k, sum"), ("GROUP BY k", "GROUP BY id")),
    "keys in another order": edit("two keys", "corrupts", ("GROUP BY k, u", "GROUP BY u, k")),
    "a key more": edit("keyed", "fails", ("SELECT k, sum", "SELECT k, u, sum"), ("GROUP BY k", "GROUP BY k, u")),
    "a key less": edit("two keys", "fails", ("SELECT k, u,", "SELECT k,"), ("GROUP BY k, u", "GROUP BY k")),
    "a key in lower case": edit("keyed", "corrupts", ("SELECT k, sum", "SELECT lower(u) AS k, sum"), ("GROUP BY k", "GROUP BY lower(u)")),
    "a key of a window replaced": edit("window", "corrupts", (", k, sum", ", u AS k, sum")),
    "longer windows": edit("window", "mixed", ("'10 minutes'", "'20 minutes'")),
    "longer windows, update": edit("window, update", "mixed", ("'10 minutes'", "'30 minutes'")),
    "windows begin elsewhere": edit("window", "mixed", ("window(at, '10 minutes')", "window(at, '10 minutes', '10 minutes', '3 minutes')")),
    "another slide": edit("sliding", "mixed", ("'10 minutes', '5 minutes'", "'10 minutes', '2 minutes'")),
    "another gap": edit("session", "mixed", ("'5 minutes'", "'2 minutes'")),
    "other keys of a session": edit("session", "corrupts", (", k, count", ", u AS k, count")),
    "windows of windows": edit("window of windows", "mixed", ("'20 minutes'", "'40 minutes'")),
    "inner windows": edit("window of windows", "corrupts", ("'5 minutes'", "'10 minutes'")),
    "windows by another time zone": edit("day", "corrupts", confs=(("spark.sql.session.timeZone", "Pacific/Auckland"),)),
    "another time zone, nothing depends on it": edit("keyed", "note", confs=(("spark.sql.session.timeZone", "Asia/Tokyo"),)),
    "other keys of distinct": edit("distinct", "corrupts", ("DISTINCT k, u, at", "DISTINCT u AS k, k AS u, at")),
    "another cube": edit("cube", "corrupts", ("CUBE (k, u)", "ROLLUP (k, u)")),
    # -- rows below state
    "a filter below groups": edit("keyed", "corrupts", ("FROM a GROUP", "FROM a WHERE n > 3 GROUP")),
    "a filter below windows": edit("window", "corrupts", ("FROM a GROUP", "FROM a WHERE m > 3 GROUP")),
    "a filter of keys only": edit("keyed", "note", ("FROM a GROUP", "FROM a WHERE k <> 'y' GROUP")),
    "a filter of keys of windows": edit("window", "mixed", ("FROM a GROUP", "FROM a WHERE k <> 'y' GROUP")),
    "a filter of keys is taken away": edit("chosen groups", "corrupts", (" WHERE k <> 'y'", "")),
    "a filter below a join": edit("join", "mixed", (f"ON {RANGE}", f"ON {RANGE} WHERE n > 3")),
    "a filter above dedup": edit("dedup", "safe", ("FROM once", "FROM once WHERE n > 3")),
    "a filter below distinct": edit("distinct", "mixed", ("FROM a", "FROM a WHERE n > 5")),
    "a value below groups": edit("keyed", "corrupts", ("FROM a GROUP", "FROM (SELECT k, n * 2 AS n, m FROM a) GROUP")),
    "another static below groups": edit("static join", "mixed", ("path: s1.csv", "path: s2.csv")),
    "a static join below groups": edit("keyed", "corrupts", ("FROM a GROUP", "FROM a JOIN s ON k = sk GROUP")),
    "an explosion below groups": edit("keyed", "corrupts", ("FROM a GROUP", "FROM a LATERAL VIEW explode(array(1, 2)) e AS one GROUP")),
    "a like of several patterns": edit("likes", "corrupts", ("'y_%'", "'q_%'")),
    "values of a subquery": edit("values", "corrupts", ("(5), (4)", "(1), (2)")),
    "nothing, where a week ago is asked for": edit("week", "same"),
    "a helper that is imported inside": edit("udf inside", "safe", helper=(("x.upper()", "x.lower()"),)),
    "spaces in the columns of csv": edit("csv", "same", ("k STRING, u STRING", "k STRING,u  STRING")),
    "a stricter mode of csv": edit("csv", "mixed", ("maxFilesPerTrigger: 1}", "maxFilesPerTrigger: 1, mode: DROPMALFORMED, enforceSchema: true, nullValue: 1}")),
    "nothing, where the time is asked for": edit("clock", "same"),
    "the date is asked for": edit("stateless", "safe", ("k, n FROM", "k, n, current_date() AS t FROM")),
    "a subquery over a static": edit("keyed", "note", ("FROM a GROUP", "FROM a WHERE k > (SELECT min(sk) FROM s) GROUP")),
    "another subquery over a static": edit("subquery", "corrupts", ("count(*) FROM s", "count(DISTINCT sk) - 1 FROM s")),
    "another part of an array": edit("arrays", "corrupts", ("(e, i) -> e", "(e, i) -> i")),
    "columns of csv change places": edit("csv", "corrupts", ('"k STRING, u STRING, n INT, m INT"', '"k STRING, u STRING, m INT, n INT"')),
    "columns of csv are read otherwise": edit("csv", "mixed", ("maxFilesPerTrigger: 1}", 'maxFilesPerTrigger: 1, nullValue: "1"}')),
    "a column of csv more": edit("csv", "same", ("n INT, m INT", "n INT, m INT, id INT")),
    "bad records end it": edit("decoded", "same", ("    decode", "    on_bad_record: fail\n    decode")),
    "a limit of a complete result": edit("complete", "safe", ("GROUP BY k", "GROUP BY k ORDER BY k LIMIT 2")),
    # -- what is kept by join, dedup, limit
    "one more column after a join": edit("join", "fails", ("n, v FROM", "n, v, w FROM")),
    "another column after a join": edit("join", "corrupts", ("n, v FROM", "n, w AS v FROM")),
    "inner to left join": edit("join", "note", ("a JOIN b", "a LEFT JOIN b")),
    "left to inner join": edit("left join", "note", ("a LEFT JOIN b", "a JOIN b")),
    "semi to inner join": edit("semi join", "corrupts", ("LEFT SEMI JOIN", "JOIN")),
    "a shorter range": edit("join", "note", ("at + INTERVAL 5 MINUTES", "at + INTERVAL 2 MINUTES")),
    "a longer range": edit("join", "mixed", ("at + INTERVAL 5 MINUTES", "at + INTERVAL 90 MINUTES")),
    "a shorter range of an outer join": edit("left join", "mixed", ("at + INTERVAL 5 MINUTES", "at + INTERVAL 2 MINUTES")),
    "another key of a join": edit("join", "corrupts", ("k = bk", "u = bu")),
    "another key of dedup": edit("dedup", "corrupts", ("keys: [id, at]", "keys: [n, at]")),
    "a key less of dedup": edit("dedup", "fails", ("keys: [id, at]", "keys: [at]")),
    "another key of dedup within": edit("dedup within", "corrupts", ("keys: [id]", "keys: [n]")),
    "another limit": edit("limit", "mixed", ("LIMIT 5", "LIMIT 7")),
    "dedup is added below windows": edit("window", "fails", ("FROM a GROUP", "FROM (SELECT DISTINCT id, k, at, n FROM a) GROUP")),
    "state is taken away": edit("window", "fails", ("SELECT window(at, '10 minutes') AS w, k, sum(n) AS v FROM a GROUP BY 1, 2", "SELECT id, k, n AS v FROM a")),
    "state is added": edit("stateless", "fails", ("SELECT id, k, n FROM a WHERE n > 2", "SELECT window(at, '10 minutes') AS w, count(*) AS c FROM a GROUP BY 1")),
    "dedup becomes windows": edit("dedup", "fails", ("SELECT id, k FROM once", "SELECT window(at, '10 minutes') AS w, count(*) AS c FROM once GROUP BY 1")),
    "two groups change places": edit("two groups", "corrupts", ("SELECT k, sum(n) AS s FROM a GROUP BY k UNION ALL SELECT bk, sum(v) FROM b GROUP BY bk", "SELECT bk AS k, sum(v) AS s FROM b GROUP BY bk UNION ALL SELECT k, sum(n) FROM a GROUP BY k")),
    # -- watermarks and modes
    "no watermark": edit("window, update", "corrupts", (", watermark: {column: at, delay: 10 minutes}", "")),
    "a longer delay": edit("window, update", "mixed", ("column: at, delay: 10 minutes", "column: at, delay: 2 hours")),
    "a shorter delay": edit("window", "mixed", ("column: at, delay: 10 minutes", "column: at, delay: 1 minute")),
    "a shorter delay of a key alone": edit("keyed", "same", ("maxFilesPerTrigger: 1}}\n  b", "maxFilesPerTrigger: 1}, watermark: {column: at, delay: 1 minute}}\n  b")),
    "append to update": edit("window", "corrupts", ("output_mode: append", "output_mode: update")),
    "update to append": edit("window, update", "mixed", ("output_mode: update", "output_mode: append")),
    "append to complete": edit("window", "corrupts", ("output_mode: append", "output_mode: complete")),
    "complete to update": edit("complete", "note", ("output_mode: complete", "output_mode: update")),
    "update to complete": edit("keyed", "safe", ("output_mode: update", "output_mode: complete")),
    # -- streams
    "a stream more, no state": edit("stateless", "safe", ("WHERE n > 2", "WHERE n > 2 UNION ALL SELECT id, k, n FROM c")),
    "a stream less, no state": edit("union", "safe", (" UNION ALL SELECT bid, v FROM b", "")),
    "streams in another order, no state": edit("union", "same", ("SELECT id, n FROM a UNION ALL SELECT bid, v FROM b", "SELECT bid AS id, v AS n FROM b UNION ALL SELECT id, n FROM a")),
    "a stream more below groups": edit("keyed", "note", ("FROM a GROUP", "FROM (SELECT k, n, m FROM a UNION ALL SELECT k, n, m FROM c) GROUP")),
    "a stream less below groups": edit("union, grouped", "corrupts", (" UNION ALL SELECT bk, v FROM b", "")),
    "streams in another order below groups": edit("union, grouped", "same", ("SELECT k, n FROM a UNION ALL SELECT bk, v FROM b", "SELECT bk AS k, v AS n FROM b UNION ALL SELECT k, n FROM a")),
    "the stream reads another folder": edit("keyed", "fails", ("format: json, path: a,", "format: json, path: c,")),
    "another cap": edit("keyed", "safe", ("maxFilesPerTrigger: 1}}\n  b", "maxFilesPerTrigger: 3}}\n  b")),
    "the schema has one column more": edit("keyed", "same", ("x DOUBLE\", options: {maxFilesPerTrigger: 1}}\n  b", "x DOUBLE, y INT\", options: {maxFilesPerTrigger: 1}}\n  b")),
    "the key has another type in the schema": edit("two keys", "fails", ("u STRING, at TIMESTAMP, n INT, m INT, x DOUBLE\", options: {maxFilesPerTrigger: 1}}\n  b", "u INT, at TIMESTAMP, n INT, m INT, x DOUBLE\", options: {maxFilesPerTrigger: 1}}\n  b")),
    "a decoded field more": edit("decoded", "same", ("n INT, m INT", "n INT, m INT, u STRING")),
    "another decoded field": edit("decoded", "corrupts", ("sum(n)", "sum(m)")),
    # -- Python
    "docstring, comment and type hints": edit("udf key", "same", code=(('"""Upper case."""', '# upper case'), ("def norm(x):", "def norm(x: str) -> str:"))),
    "lines move": edit("udf key", "same", code=(("FACTOR = 2", "OTHER = 1\n\n\nFACTOR = 2"),)),
    "a function has another name": edit("udf", "same", code=(("def norm(x)", "def normal(x)"), ('norm("k")', 'normal("k")'))),
    "a UDF, no state": edit("udf", "safe", code=(("return shout(x)", 'return shout(x) + "!"'),)),
    "a default argument, no state": edit("udf", "safe", code=(("FACTOR = 2", "FACTOR = 5"),)),
    "a helper module, no state": edit("udf", "safe", helper=(("x.upper()", "x.lower()"),)),
    "a UDF makes the key": edit("udf key", "mixed", code=(("return shout(x)", 'return shout(x) + "!"'),)),
    "a helper of the key": edit("udf key", "mixed", helper=(("x.upper()", "x.lower()"),)),
    "a captured value in a sum": edit("udf key", "corrupts", code=(("scaled(3)", "scaled(30)"),)),
    "a function of frames": edit("mapped", "safe", code=(('frame["n"] * 2', 'frame["n"] * 3'),)),
    "code that keeps pandas state": edit("pandas state", "mixed", code=(('frame["n"].sum()', 'frame["m"].sum()'),)),
    "a comment in state code": edit("pandas state", "same", code=(("        total, number =", "        # what there is\n        total, number ="),)),
    "fields of pandas state change places": edit("pandas state", "corrupts", code=(('"total LONG, number LONG", "update"', '"number LONG, total LONG", "update"'), ("total, number = state.get", "number, total = state.get"), ("state.update((total, number))", "state.update((number, total))"))),
    "a processor computes otherwise": edit("processor", "mixed", code=(("total += row.n", "total += row.m"),)),
    "a processor's docstring": edit("processor", "same", code=(('"""Adds up."""', '"""Adds up what comes."""'),)),
    "a state variable has another name": edit("processor", "corrupts", code=(('getValueState("total"', 'getValueState("sum"'),)),
    "a state variable more": edit("processor", "note", code=(("    def handleInputRows", '        self.more = handle.getValueState("more", "n LONG")\n\n    def handleInputRows'),)),
    "Python instead of SQL": edit("keyed", "same", ('query: "SELECT k, sum(n) AS sn, sum(m) AS sm FROM a GROUP BY k"', 'query: {python: "MODULE:summed"}'), code=(("def rows(a):", 'def summed(a):\n    return a.groupBy("k").agg(F.sum("n").alias("sn"), F.sum("m").alias("sm"))\n\n\ndef rows(a):'),)),
    # -- confs and triggers
    "shuffle partitions": edit("keyed", "note", confs=(("spark.sql.shuffle.partitions", "3"),)),
    "the state store": edit("keyed", "note", confs=(("spark.sql.streaming.stateStore.providerClass", "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"),)),
    "another trigger": edit("keyed", "safe", ("output_mode: update", "output_mode: update\n    trigger: {processing_time: 3 seconds}")),
}  # fmt: skip
