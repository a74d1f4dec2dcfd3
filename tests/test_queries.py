"""Queries from files to embedded tables; what they mean is told in test_semantics."""

from __future__ import annotations

import datetime as dt

import pytest

from evertable.errors import EvertableError

UTC = dt.UTC

CLICKS = """
name: p
streams:
  clicks:
    format: json
    path: clicks
    schema: "ad STRING, user STRING, at TIMESTAMP, n INT"
    options: {maxFilesPerTrigger: 1}
    watermark: {column: at, delay: 10 minutes}
"""


def click(ad: str, minute: int, user: str = "u", n: int = 1) -> str:
    return f'{{"ad":"{ad}","user":"{user}","at":"2026-01-01T12:{minute:02}:00Z","n":{n}}}'


def at(minute: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1, 12, 0, tzinfo=UTC) + dt.timedelta(minutes=minute)


def pipeline(kit, tables, more=""):
    return kit.yaml(CLICKS + more + "tables:\n" + tables)


def test_update_replaces_the_row_of_a_key(kit):
    kit.feed("clicks", click("a", 1), click("b", 1))
    p = pipeline(
        kit,
        """
  t:
    query: SELECT ad, sum(n) AS total FROM clicks GROUP BY ad
    output_mode: update
    trigger: available_now
""",
    )
    kit.run(p)
    kit.feed("clicks", click("a", 2, n=5))
    kit.run(p)
    assert kit.rows("t") == [("a", 6), ("b", 1)]


def test_complete_replaces_the_whole_table(kit):
    kit.feed("clicks", click("a", 1), click("b", 1))
    kit.feed("clicks", click("b", 1))
    p = pipeline(
        kit,
        """
  t:
    query: SELECT ad, count(*) AS n FROM clicks GROUP BY ad
    output_mode: complete
    trigger: available_now
""",
    )
    kit.run(p)
    assert kit.rows("t") == [("a", 1), ("b", 2)]


def test_stream_joined_with_a_static_table(kit):
    kit.write("brands.csv", "ad,brand\na,acme\n")
    kit.feed("clicks", click("a", 1), click("b", 1))
    p = pipeline(
        kit,
        """
  t:
    query: SELECT ad, brand FROM clicks LEFT JOIN brands USING (ad)
    trigger: available_now
""",
        """
statics:
  brands: {format: csv, path: brands.csv, schema: "ad STRING, brand STRING",
           options: {header: true}}
""",
    )
    kit.run(p)
    assert kit.rows("t") == [("a", "acme"), ("b", None)]


def test_dedup_by_key_within_the_watermark(kit):
    kit.feed("clicks", click("a", 1, "x"), click("a", 2, "x"), click("b", 2, "y"))
    kit.feed("clicks", click("a", 3, "x"))
    p = kit.yaml(
        CLICKS
        + """
    dedup: {keys: [ad, user], within: watermark}
tables:
  t:
    query: SELECT ad, user FROM clicks
    trigger: available_now
"""
    )
    kit.run(p)
    assert kit.rows("t") == [("a", "x"), ("b", "y")]


def source_names(kit, table):
    lines = (
        (kit.folder / ".evertable/p/checkpoints" / table / "offsets/0").read_text().splitlines()[2:]
    )
    return sorted(line.partition(":")[0] for line in lines)


def test_self_join_reads_one_stream_under_two_stable_names(kit):
    kit.feed("clicks", click("a", 1, "x"), click("b", 1, "x"))
    p = pipeline(
        kit,
        """
  t:
    query: |
      SELECT l.ad AS one, r.ad AS other FROM clicks l JOIN clicks r
        ON l.user = r.user AND l.at = r.at AND l.ad < r.ad
    trigger: available_now
""",
    )
    kit.run(p)
    assert kit.rows("t") == [("a", "b")]
    assert source_names(kit, "t") == ["clicks", "clicks_2"]


def test_union_of_a_stream_with_a_view_of_itself(kit):
    kit.feed("clicks", click("a", 1), click("b", 2))
    p = pipeline(
        kit,
        """
  t:
    query: SELECT ad FROM clicks UNION ALL SELECT ad FROM only_a
    trigger: available_now
""",
        """
views:
  only_a: SELECT * FROM clicks WHERE ad = 'a'
""",
    )
    kit.run(p)
    assert kit.rows("t") == [("a",), ("a",), ("b",)]
    assert source_names(kit, "t") == ["clicks", "clicks_2"]


def test_names_in_with_clauses_subqueries_and_strings_are_left_alone(kit):
    kit.feed("clicks", click("a", 1), click("b", 2))
    p = pipeline(
        kit,
        """
  t:
    query: |
      WITH clicks AS (SELECT ad, 'FROM clicks' AS said FROM clicks WHERE ad = 'a')
      SELECT c.ad, said FROM clicks c WHERE EXISTS (SELECT 1 FROM one WHERE one.x = c.ad)
    trigger: available_now
""",
        """
statics:
  one: {format: csv, path: one.csv, schema: "x STRING"}
""",
    )
    kit.write("one.csv", "a\n")
    kit.run(p)
    assert kit.rows("t") == [("a", "FROM clicks")]


def test_sql_in_a_file_of_its_own(kit):
    kit.feed("clicks", click("a", 1))
    kit.write("t.sql", "-- every click\nSELECT ad\nFROM clicks\n")
    p = pipeline(
        kit,
        """
  t: {query: {file: t.sql}, trigger: available_now}
""",
    )
    kit.run(p)
    assert kit.rows("t") == [("a",)]


def test_a_python_function_as_a_query(kit):
    kit.feed("clicks", click("a", 1, n=2))
    kit.write(
        "more.py",
        """
        from pyspark.sql import functions as F

        def doubled(clicks):
            twice = F.udf(lambda n: n * 2, "int")
            return clicks.select("ad", twice("n").alias("n"))
    """,
    )
    p = pipeline(
        kit,
        """
  t: {query: {python: "more.py:doubled"}, trigger: available_now}
""",
    )
    kit.run(p)
    assert kit.rows("t") == [("a", 4)]


def test_one_dataframe_used_twice_in_python_runs_with_unnamed_sources(kit):
    kit.feed("clicks", click("a", 1), click("b", 1))
    kit.write(
        "selfish.py",
        """
        def both(clicks):
            return clicks.select("ad").unionAll(clicks.select("ad"))
    """,
    )
    p = pipeline(
        kit,
        """
  t: {query: {python: "selfish.py:both"}, trigger: available_now}
""",
    )
    kit.run(p)
    assert kit.rows("t") == [("a",), ("a",), ("b",), ("b",)]
    kit.feed("clicks", click("c", 1))
    kit.run(p)  # and goes on from its checkpoint
    assert kit.rows("t")[-2:] == [("c",), ("c",)]


def test_several_tables_each_with_its_own_checkpoint(kit):
    kit.feed("clicks", click("a", 1))
    p = pipeline(
        kit,
        """
  one: {query: "SELECT ad FROM clicks", trigger: available_now}
  two: {query: "SELECT n FROM clicks", trigger: available_now}
""",
    )
    kit.run(p, only=("one",))
    assert kit.rows("one") == [("a",)]
    with pytest.raises(EvertableError, match="TABLE_EMPTY"):
        kit.rows("two")
    kit.run(p)
    assert kit.rows("one") == [("a",)]
    assert kit.rows("two") == [(1,)]


def test_each_table_has_a_scheduler_pool_of_its_own(kit):
    """A table with much to do does not make the others wait."""
    kit.feed("in", "x")
    kit.write(
        "pools.py",
        """
        from pyspark import TaskContext
        from pyspark.sql.functions import udf

        @udf("string")
        def pool(value):
            return TaskContext.get().getLocalProperty("spark.scheduler.pool")

        def pools(s):
            return s.select(pool("value").alias("pool"))
    """,
    )
    table = '{query: {python: "pools.py:pools"}, trigger: once'
    kit.run(
        kit.yaml(f"""
name: p
streams:
  s: {{format: text, path: in}}
tables:
  one: {table}}}
  other: {table}, sink: {{format: json, path: other}}}}
""")
    )
    assert kit.spark.conf.get("spark.scheduler.mode") == "FAIR"
    assert kit.rows("one") == [("one",)]
    written = kit.spark.read.json(str(kit.folder / "other"))
    assert [row.pool for row in written.collect()] == ["other"]


def test_triggers_once_processing_time_and_default(kit):
    for trigger in ("once", "{processing_time: 100 milliseconds}", "default"):
        kit.folder = kit.folder / trigger[:5].strip("{")
        kit.file = kit.folder / "p.yaml"
        for minute in (1, 2, 3):
            kit.feed("clicks", click("a", minute))
        p = pipeline(
            kit,
            f"""
  t: {{query: "SELECT at FROM clicks", trigger: {trigger}}}
""",
        )
        if trigger == "once":
            kit.run(p)
        else:
            run_until(kit, p, lambda: len(kit.rows("t")) == 3)
        assert kit.rows("t") == [(at(1),), (at(2),), (at(3),)]


def run_until(kit, p, done):
    from evertable.run.runner import Runner

    runner = Runner(p, spark=kit.spark)
    runner.start()

    def stop_when_done():
        try:
            if done():
                runner.stop()
        except EvertableError:
            pass  # no batch yet

    runner.wait(stop_when_done)
    assert not runner.failed(), runner.failed()[0].finding


def test_a_placeholder_that_is_escaped_is_text_in_sql(kit):
    kit.feed("clicks", click("a", 1))
    p = pipeline(
        kit,
        """
  t: {query: "SELECT '$${x}' AS v FROM clicks", trigger: available_now}
""",
    )
    kit.run(p)
    assert kit.rows("t") == [("${x}",)]
