"""Ten pipelines, each written in YAML and in Python: the same model, operators and rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from pyspark.sql import functions as F

import evertable as et
from evertable.model.pipeline import Query
from evertable.run.analysis import analyse_table, table_session
from evertable.spark import planner
from evertable.spark.schemas import SchemaStore
from evertable.spark.session import all_confs

CLICKS = """
name: p
streams:
  clicks: {format: json, path: clicks, schema: "ad STRING, at TIMESTAMP, n INT",
           watermark: {column: at, delay: 10 minutes}, options: {maxFilesPerTrigger: 1}}
"""
SHOWN = """  shown: {format: json, path: shown, schema: "ad STRING, shown_at TIMESTAMP",
          watermark: {column: shown_at, delay: 5 minutes}}
"""
ADS = """statics:
  ads: {format: csv, path: ads.csv, schema: "ad STRING, brand STRING", options: {header: true}}
"""


def clicks(p, **more):
    p.stream(
        "clicks",
        format="json",
        path="clicks",
        schema="ad STRING, at TIMESTAMP, n INT",
        watermark=("at", "10 minutes"),
        options={"maxFilesPerTrigger": 1},
        **more,
    )


def shown(p):
    p.stream(
        "shown",
        format="json",
        path="shown",
        schema="ad STRING, shown_at TIMESTAMP",
        watermark=("shown_at", "5 minutes"),
    )


def ads(p):
    p.static(
        "ads",
        format="csv",
        path="ads.csv",
        schema="ad STRING, brand STRING",
        options={"header": True},
    )


@dataclass
class Both:
    """One pipeline; `sql` is the Python door with SQL, `frame` with DataFrame functions."""

    name: str
    yaml: str
    sql: Callable[[et.Pipeline], None]
    frame: Callable[[et.Pipeline], None]


NOW = {"trigger": et.available_now()}


def one_table(query, mode="append", more=""):
    return (
        f"tables:\n  t:\n    query: {query}\n    output_mode: {mode}\n"
        f"    trigger: available_now\n{more}"
    )


def both(name, query, mode, frame, streams=(clicks,), yaml=CLICKS, keys=None, yaml_keys=""):
    def sql_door(p):
        for stream in streams:
            stream(p)
        p.table("t", sql=query, output_mode=mode, **NOW, **(keys or {}))

    def frame_door(p):
        for stream in streams:
            stream(p)
        p.table(output_mode=mode, **NOW, **(keys or {}))(frame)

    return Both(name, yaml + one_table(query, mode, yaml_keys), sql_door, frame_door)


def named_t(function):
    function.__name__ = "t"
    return function


@named_t
def _filter(clicks):
    return clicks.where("n > 1").select("ad", "n")


@named_t
def _window(clicks):
    return clicks.groupBy(F.window("at", "5 minutes").alias("w"), "ad").agg(F.count("*").alias("c"))


@named_t
def _update(clicks):
    return clicks.groupBy("ad").agg(F.sum("n").alias("total"))


@named_t
def _static(clicks, ads):
    return clicks.join(ads, "ad").select("ad", "brand")


@named_t
def _join(shown, clicks):
    return (
        shown.alias("s")
        .join(
            clicks.alias("c"),
            F.expr("s.ad = c.ad AND at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES"),
        )
        .select("s.ad", "at")
    )


@named_t
def _outer(shown, clicks):
    return (
        shown.alias("s")
        .join(
            clicks.alias("c"),
            F.expr("s.ad = c.ad AND at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES"),
            "left_outer",
        )
        .select("s.ad", "at")
    )


@named_t
def _session(clicks):
    return clicks.groupBy(F.session_window("at", "5 minutes").alias("w"), "ad").agg(
        F.count("*").alias("c")
    )


@named_t
def _union(clicks, shown):
    return clicks.select("ad", F.col("at")).union(shown.select("ad", F.col("shown_at")))


@named_t
def _dedup(clicks):
    return clicks.select("ad")


JOIN = (
    "SELECT s.ad, at FROM shown s {} clicks c ON s.ad = c.ad "
    "AND at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES"
)


def dedup_clicks(p):
    clicks(p, dedup=et.Dedup(keys=("ad",), within="watermark"))


def with_view_sql(p):
    clicks(p)
    p.view("big", sql="SELECT ad, n FROM clicks WHERE n > 1")
    p.table("t", sql="SELECT ad, n + 1 AS n FROM big", **NOW)


def with_view_frame(p):
    clicks(p)

    @p.view
    def big(clicks):
        return clicks.where("n > 1").select("ad", "n")

    @p.table(**NOW)
    def t(big):
        return big.selectExpr("ad", "n + 1 AS n")


PIPELINES = [
    both("filter", "SELECT ad, n FROM clicks WHERE n > 1", "append", _filter),
    both(
        "window",
        "SELECT window(at, '5 minutes') AS w, ad, count(*) AS c FROM clicks GROUP BY 1, 2",
        "append",
        _window,
    ),
    both("update", "SELECT ad, sum(n) AS total FROM clicks GROUP BY ad", "update", _update),
    both("complete", "SELECT ad, sum(n) AS total FROM clicks GROUP BY ad", "complete", _update),
    both(
        "static join",
        "SELECT ad, brand FROM clicks JOIN ads USING (ad)",
        "append",
        _static,
        (clicks, ads),
        CLICKS + ADS,
    ),
    both("stream join", JOIN.format("JOIN"), "append", _join, (clicks, shown), CLICKS + SHOWN),
    both("outer join", JOIN.format("LEFT JOIN"), "append", _outer, (clicks, shown), CLICKS + SHOWN),
    both(
        "session",
        "SELECT session_window(at, '5 minutes') AS w, ad, count(*) AS c FROM clicks GROUP BY 1, 2",
        "append",
        _session,
    ),
    both(
        "union",
        "SELECT ad, at FROM clicks UNION ALL SELECT ad, shown_at FROM shown",
        "append",
        _union,
        (clicks, shown),
        CLICKS + SHOWN,
        {"key": (), "stop_timeout": "5 seconds"},
        "    stop_timeout: 5 seconds\n",
    ),
    both(
        "dedup",
        "SELECT ad FROM clicks",
        "append",
        _dedup,
        (dedup_clicks,),
        CLICKS.replace("options:", "dedup: {keys: [ad], within: watermark}, options:"),
    ),
    Both(
        "view",
        CLICKS
        + "views:\n  big: SELECT ad, n FROM clicks WHERE n > 1\n"
        + one_table("SELECT ad, n + 1 AS n FROM big"),
        with_view_sql,
        with_view_frame,
    ),
]


def feed(kit):
    kit.write("ads.csv", "ad,brand\na,acme\nb,best\n")
    kit.feed(
        "clicks",
        '{"ad":"a","at":"2026-01-01T12:01:00Z","n":1}',
        '{"ad":"a","at":"2026-01-01T12:02:00Z","n":2}',
    )
    kit.feed("clicks", '{"ad":"b","at":"2026-01-01T12:03:00Z","n":3}')
    kit.feed("clicks", '{"ad":"z","at":"2026-01-01T12:58:00Z","n":1}')
    kit.feed(
        "shown",
        '{"ad":"a","shown_at":"2026-01-01T12:01:00Z"}',
        '{"ad":"z","shown_at":"2026-01-01T12:57:00Z"}',
    )


def in_python(kit, define):
    p = et.Pipeline("p")
    define(p)
    return replace(p.checked(), root=str(kit.folder))


@pytest.mark.parametrize("pair", PIPELINES, ids=lambda b: b.name)
def test_both_doors_make_the_same(pair, kit):
    feed(kit)
    from_yaml = kit.yaml(pair.yaml)
    from_sql = in_python(kit, pair.sql)
    from_frames = in_python(kit, pair.frame)

    assert from_sql == from_yaml  # locations do not count
    assert without_queries(from_frames) == without_queries(from_yaml)

    facts = [operators(kit, p) for p in (from_yaml, from_sql, from_frames)]
    assert facts[0] == facts[1] == facts[2]
    assert any(operator.kind == "stream" for operator in facts[0])

    rows = []
    for n, p in enumerate((from_yaml, from_sql, from_frames)):
        p = replace(p, storage=f"storage{n}")
        runner = kit.run(p)
        rows.append(sorted(read(p, runner), key=repr))
    assert rows[0] == rows[1] == rows[2]
    assert rows[0], "a comparison of nothing with nothing"


def read(p, runner):
    from evertable.model.storage import Storage
    from evertable.sinks.embedded.reader import query

    return query("SELECT * FROM t", {"t": Storage.of(p).table_file("t")}).rows


def without_queries(p):
    return replace(
        p,
        views=tuple(replace(v, query=Query()) for v in p.views),
        tables=tuple(replace(t, query=Query()) for t in p.tables),
    )


def operators(kit, p):
    confs = all_confs(p.spark, logs=str(kit.folder / "logs"))
    session = table_session(kit.spark, confs, p.tables[0])
    schemas = SchemaStore(str(kit.folder / "schemas"), keep=False)
    return planner.operators(analyse_table(session, p, p.tables[0], schemas).frame)


def test_a_difference_of_one_option_is_a_difference(kit):
    first = kit.yaml(PIPELINES[0].yaml)
    second = kit.yaml(PIPELINES[0].yaml.replace("10 minutes", "11 minutes"))
    assert first != second


def test_the_model_is_frozen(kit):
    p = kit.yaml(PIPELINES[0].yaml)
    with pytest.raises(AttributeError):
        p.name = "q"
