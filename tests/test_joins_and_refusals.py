"""Every kind of stream-stream join in Python, and what Spark refuses."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from pyspark.sql import functions as F

import evertable as et
from evertable.cli.main import main
from evertable.errors import EvertableError
from evertable.run.runner import Runner

UTC = dt.UTC
STREAMS = """
name: p
streams:
  clicks:
    format: json
    path: clicks
    schema: "ad STRING, user STRING, at TIMESTAMP, n INT"
    options: {maxFilesPerTrigger: 1}
    watermark: {column: at, delay: 10 minutes}
  shown:
    format: json
    path: shown
    schema: "ad STRING, shown_at TIMESTAMP"
    options: {maxFilesPerTrigger: 1}
    watermark: {column: shown_at, delay: 5 minutes}
"""


def at(minute):
    return dt.datetime(2026, 1, 1, 12, 0, tzinfo=UTC) + dt.timedelta(minutes=minute)


def click(ad, minute, user="u", n=1):
    return f'{{"ad":"{ad}","user":"{user}","at":"2026-01-01T12:{minute:02}:00Z","n":{n}}}'


def shown(ad, minute):
    return f'{{"ad":"{ad}","shown_at":"2026-01-01T12:{minute:02}:00Z"}}'


def feed_both(kit):
    kit.feed("shown", shown("a", 1), shown("b", 2))
    kit.feed("clicks", click("a", 3), click("c", 4), click("a", 40))
    kit.feed("shown", shown("z", 58))
    kit.feed("clicks", click("z", 58))


MATCHED = [("a", at(1), at(3)), ("z", at(58), at(58))]
ONLY_SHOWN = [("b", at(2), None)]
ONLY_CLICKED = [("a", None, at(40)), ("c", None, at(4))]
JOINS = {
    "INNER": ("inner", MATCHED),
    "LEFT OUTER": ("left_outer", MATCHED + ONLY_SHOWN),
    "RIGHT OUTER": ("right_outer", MATCHED + ONLY_CLICKED),
    "FULL OUTER": ("full_outer", MATCHED + ONLY_SHOWN + ONLY_CLICKED),
    "LEFT SEMI": ("left_semi", [(ad, seen) for ad, seen, _ in MATCHED]),
}


@pytest.mark.parametrize("kind", JOINS)
def test_a_join_in_python(kit, kind):
    feed_both(kit)
    how, expected = JOINS[kind]
    p = et.Pipeline("p", storage=str(kit.folder / ".evertable"))
    common = {"format": "json", "options": {"maxFilesPerTrigger": 1}}
    p.stream(
        "clicks", path=str(kit.folder / "clicks"), schema="ad STRING, at TIMESTAMP",
        watermark=("at", "10 minutes"), **common,
    )  # fmt: skip
    p.stream(
        "shown", path=str(kit.folder / "shown"), schema="ad STRING, shown_at TIMESTAMP",
        watermark=("shown_at", "5 minutes"), **common,
    )  # fmt: skip

    @p.table(trigger=et.available_now())
    def t(clicks, shown):
        s, c = shown.alias("s"), clicks.alias("c")
        joined = s.join(
            c,
            F.expr("s.ad = c.ad AND at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES"),
            how,
        )
        if how == "left_semi":
            return joined.select("ad", "shown_at")
        return joined.select(F.coalesce("s.ad", "c.ad").alias("ad"), "shown_at", "at")

    p.start(spark=kit.spark)
    p.wait()
    rows = [tuple(row.values()) for row in p.table("t").rows()]
    assert sorted(rows, key=repr) == sorted(expected, key=repr)


REFUSED = [
    ("SELECT ad FROM clicks ORDER BY ad", "append", "sort", 19),
    ("SELECT count(DISTINCT user) AS n FROM clicks", "update", "distinct", 19),
    ("SELECT ad FROM clicks EXCEPT SELECT ad FROM shown", "append", "except", 19),
    ("SELECT s.ad FROM shown s JOIN clicks c", "append", "equal", 19),
    ("SELECT s.ad FROM shown s JOIN clicks c ON s.shown_at < c.at", "append", "equal", 19),
    ("SELECT s.ad FROM shown s LEFT ANTI JOIN clicks c ON s.ad = c.ad", "append", "anti", 19),
    ("SELECT s.ad FROM shown s LEFT JOIN clicks c ON s.ad = c.ad", "append", "watermark", 19),
    ("SELECT ad FROM clicks", "complete", "complete", 17),
    ("SELECT ad, count(*) AS n FROM clicks GROUP BY ad LIMIT 2", "update", "limit", 19),
    ("SELECT session_window(at, '5 minutes') AS w, count(*) AS n FROM clicks GROUP BY 1",
     "update", "session", 17),
]  # fmt: skip


@pytest.mark.parametrize(("query", "mode", "said", "line"), REFUSED)
def test_what_spark_refuses_is_refused_before_the_start_with_the_users_line(
    kit, query, mode, said, line
):
    kit.feed("clicks", click("a", 1))
    kit.feed("shown", shown("a", 1))
    model = kit.yaml(STREAMS + f"""
tables:
  t:
    output_mode: {mode}
    query: {query}
""")  # fmt: skip
    with pytest.raises(EvertableError) as e:
        Runner(model, spark=kit.spark).start()
    (finding,) = e.value.findings
    assert said in f"{finding.message} {finding.detail} {finding.spark}".lower()
    assert finding.hint
    assert finding.code != "SPARK_FAILED"
    assert finding.place.line == line
    assert kit.spark.streams.active == []


def test_check_reports_what_is_wrong_with_every_table_each_with_its_line(kit, capsys):
    kit.feed("in", "{}")
    kit.write(
        "p.yaml",
        """
        name: p
        spark: {master: "local[2]", spark.sql.shuffle.partitions: 2}
        streams:
          s: {format: json, path: in, schema: "k STRING, n INT"}
        tables:
          good: {query: SELECT k FROM s}
          unknown:
            query: |
              SELECT k,
                nn
              FROM s
          elsewhere: {query: SELECT * FROM t}
          unwatched:
            query: SELECT k, count(*) AS n FROM s GROUP BY k
    """,
    )
    assert main(["check", "p.yaml", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(f["code"], f["line"]) for f in found if f["severity"] == "error"] == [
        ("COLUMN_UNKNOWN", 10),
        ("NAME_UNKNOWN", 12),
        ("WATERMARK_MISSING", 13),
    ]
    assert {f["file"] for f in found} == {"p.yaml"}
