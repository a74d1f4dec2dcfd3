"""A table as the stream of the next one, and static tables that are read anew."""

from __future__ import annotations

import pytest

import evertable as et
from evertable.errors import EvertableError
from evertable.run.events import Ended, Refreshed, Started
from evertable.run.runner import Runner
from evertable.spark.hops import upstream_first
from kit import Failed, wait_for

CHAIN = """
name: p
streams:
  s:
    format: json
    path: in
    schema: "ad STRING, at TIMESTAMP, n INT"
    options: {maxFilesPerTrigger: 1}
tables:
  per_ad:                                   # named before what it reads, on purpose
    query: |
      SELECT window(at, '5 minutes') AS w, ad, sum(n) AS n
      FROM big WATERMARK at DELAY OF INTERVAL 0 SECONDS GROUP BY 1, 2
    output_mode: update
    trigger: TRIGGER
  big:
    query: SELECT ad, at, n, hour(at) AS h FROM s WHERE n > 1
    trigger: TRIGGER
    partition_by: h
    sink: {format: FORMAT, path: big}
"""


def chain(kit, format="parquet", trigger="available_now"):
    return kit.yaml(CHAIN.replace("FORMAT", format).replace("TRIGGER", trigger))


def feed(kit, *numbers):
    for n in numbers:
        kit.feed("in", *(f'{{"ad":"{a}","at":"2026-01-01T12:00:00Z","n":{n}}}' for a in "ab"))


@pytest.mark.parametrize("format", ["parquet", "json", "csv", "orc"])
def test_a_table_kept_in_files_is_the_stream_of_the_next(kit, format):
    feed(kit, 1, 2, 3)
    kit.run(chain(kit, format))
    assert kit.rows("per_ad", "ad, n") == [("a", 5), ("b", 5)]
    feed(kit, 10)
    kit.run(chain(kit, format))
    assert kit.rows("per_ad", "ad, n") == [("a", 15), ("b", 15)]


def test_tables_that_end_start_one_after_the_other(kit):
    feed(kit, 2)
    kit.run(chain(kit))
    order = [(type(e).__name__, e.table) for e in kit.events if isinstance(e, Started | Ended)]
    assert order == [
        ("Started", "big"), ("Ended", "big"), ("Started", "per_ad"), ("Ended", "per_ad"),
    ]  # fmt: skip


def test_tables_that_run_on_hand_rows_down_and_stop_from_the_top(kit):
    feed(kit, 2)
    runner = Runner(
        chain(kit, trigger="{processing_time: 50 milliseconds}"),
        spark=kit.spark,
        emit=kit.events.append,
    )
    runner.start()
    try:
        wait_for(lambda: rows(kit) == [("a", 2), ("b", 2)])
        feed(kit, 5)
        wait_for(lambda: rows(kit) == [("a", 7), ("b", 7)])
    finally:
        runner.stop()
    ended = [e.table for e in kit.events if isinstance(e, Ended)]
    assert ended == ["big", "per_ad"]


def rows(kit):
    try:
        return kit.rows("per_ad", "ad, n")
    except EvertableError:
        return []


def test_a_table_whose_input_failed_is_left_out(kit):
    feed(kit, 2)
    model = kit.yaml(
        CHAIN.replace("FORMAT", "parquet")
        .replace("TRIGGER", "available_now")
        .replace("hour(at)", "CAST(raise_error('broken') AS INT)")
    )
    with pytest.raises(Failed, match="broken"):
        kit.run(model)
    assert [(e.table, e.how) for e in kit.events if isinstance(e, Ended)] == [
        ("big", "failed"), ("per_ad", "stopped"),
    ]  # fmt: skip
    assert kit.spark.streams.active == []


def test_a_table_kept_in_kafka_is_the_stream_of_the_next(kit, kafka):
    topic = kafka.topic("big")
    feed(kit, 1, 2)
    model = kit.yaml(f"""
name: p
streams:
  s: {{format: json, path: in, schema: "ad STRING, at TIMESTAMP, n INT"}}
tables:
  big:
    query: SELECT ad AS key, CAST(n AS STRING) AS value FROM s WHERE n > 1
    trigger: available_now
    sink: {{format: kafka, kafka.bootstrap.servers: "{kafka.address}", topic: {topic}}}
  next:
    query: SELECT CAST(key AS STRING) AS k, CAST(value AS STRING) AS v, offset FROM big
    trigger: available_now
""")
    kit.run(model)
    assert [r[:2] for r in kit.rows("next")] == [("a", "2"), ("b", "2")]


def test_hops_through_views_and_python(kit):
    feed(kit, 2, 3)
    kit.write("work.py", "def twice(seen):\n    return seen.selectExpr('ad', 'n * 2 AS n')\n")
    kit.run(
        kit.yaml("""
name: p
streams:
  s: {format: json, path: in, schema: "ad STRING, n INT"}
views:
  seen: SELECT ad, n FROM kept WHERE ad = 'a'
tables:
  last: {query: SELECT * FROM doubled, trigger: available_now}
  doubled: {query: {python: "work.py:twice"}, trigger: available_now,
            sink: {format: json, path: doubled}}
  kept: {query: SELECT * FROM s, trigger: available_now, sink: {format: parquet, path: kept}}
""")
    )
    assert kit.rows("last") == [("a", 4), ("a", 6)]


def test_the_python_door(kit):
    feed(kit, 1, 2)
    p = et.Pipeline("p", storage=str(kit.folder / ".evertable"))
    p.stream("s", format="json", path=str(kit.folder / "in"), schema="ad STRING, n INT")
    now = et.available_now()

    @p.table(trigger=now)
    def after(before):
        return before.where("n > 1").select("ad")

    @p.table(trigger=now, sink=et.files("parquet", str(kit.folder / "before")))
    def before(s):
        return s

    p.start(spark=kit.spark)
    p.wait()
    assert sorted(r["ad"] for r in p.table("after").rows()) == ["a", "b"]


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ("a: {query: SELECT 1 AS x FROM b, sink: {format: json, path: a}}\n"
         "  b: {query: SELECT 1 AS x FROM a, sink: {format: json, path: b}}", "TABLE_CYCLE"),
        ("a: {query: SELECT value FROM a, sink: {format: json, path: a}}", "TABLE_CYCLE"),
        ("a: {query: SELECT value FROM r}\n  b: {query: SELECT * FROM a}", "NAME_UNKNOWN"),
    ],
)  # fmt: skip
def test_what_is_no_stream_of_another_is_refused(kit, tables, code):
    model = kit.yaml(f"name: p\nstreams:\n  r: {{format: rate}}\ntables:\n  {tables}\n")
    with pytest.raises(EvertableError) as e:
        Runner(model, spark=kit.spark).start()
    assert code in [f.code for f in e.value.findings]
    assert all(f.place for f in e.value.findings)


def test_a_table_that_has_not_run_yet_says_so(kit):
    feed(kit, 2)
    with pytest.raises(EvertableError, match='"big" is read as a stream, and has not run yet'):
        kit.run(chain(kit), only=("per_ad",))
    kit.run(chain(kit), only=("big",))
    kit.run(chain(kit), only=("per_ad",))
    assert kit.rows("per_ad", "ad, n") == [("a", 2), ("b", 2)]


def test_files_that_were_not_committed_are_not_read(kit):
    """The next table goes by the log of the folder, from its very first batch."""
    feed(kit, 2)
    model = chain(kit)
    kit.run(model, only=("big",))
    (kit.folder / "big/h=12/part-99999-stray.c000.json").write_text("no parquet at all")
    kit.run(model, only=("per_ad",))
    assert kit.rows("per_ad", "ad, n") == [("a", 2), ("b", 2)]


def test_order_is_that_of_the_file_where_it_does_not_matter(kit):
    model = chain(kit)
    per_ad, big = model.tables
    assert upstream_first([per_ad, big], {"per_ad": {"big"}, "big": set()}) == [big, per_ad]
    assert upstream_first([per_ad, big], {"per_ad": set(), "big": set()}) == [per_ad, big]
    assert len(upstream_first([per_ad, big], {"per_ad": {"big"}, "big": {"per_ad"}})) == 2


REFRESHED = """
name: p
streams:
  s: {format: json, path: in, schema: "ad STRING", options: {maxFilesPerTrigger: 1}}
statics:
  brands:
    format: csv
    path: brands
    schema: "ad STRING, brand STRING"
    refresh: 200 milliseconds
tables:
  t:
    query: SELECT ad, brand FROM s LEFT JOIN brands USING (ad)
    trigger: {processing_time: 20 milliseconds}
    sink: SINK
  counted:
    query: SELECT brand, count(*) AS n FROM s JOIN brands USING (ad) GROUP BY brand
    output_mode: complete
    trigger: {processing_time: 20 milliseconds}
"""


@pytest.mark.parametrize("sink", ["embedded", "[embedded, {format: json, path: out}]"])
def test_statics_are_read_anew_between_two_batches(kit, sink):
    kit.write("brands/1.csv", "a,acme\n")
    kit.feed("in", '{"ad":"a"}', '{"ad":"b"}')
    runner = Runner(
        kit.yaml(REFRESHED.replace("SINK", sink)), spark=kit.spark, emit=kit.events.append
    )
    runner.start()
    found = lambda: table(kit, "t")  # noqa: E731
    try:
        wait_for(lambda: runner.runs[0].ended() or found() == [("a", "acme"), ("b", None)])
        kit.write("brands/2.csv", "b,bolt\n")
        # rows keep coming through every restart
        for number in range(3, 9):
            kit.feed("in", '{"ad":"a"}')
            wait_for(lambda number=number: running(runner) and len(refreshed(kit)) >= number)
        kit.feed("in", '{"ad":"b"}')
        wait_for(lambda: running(runner) and ("b", "bolt") in found())
        wait_for(lambda: running(runner) and len(found()) == 9)
        wait_for(lambda: running(runner) and dict(table(kit, "counted")).get("acme") == 7)
    finally:
        runner.stop()
    assert [r.finding for r in runner.failed()] == []
    assert len(found()) == 9, "nothing was lost or doubled by the restarts"


def running(runner):
    for run in runner.runs:
        assert not run.ended(), run.finding
    return True


def refreshed(kit):
    return [e for e in kit.events if isinstance(e, Refreshed)]


def table(kit, name):
    try:
        return kit.rows(name)
    except EvertableError:
        return []


def test_a_static_that_no_longer_fits_ends_the_table_with_its_line(kit):
    kit.write("brands/1.csv", "a,acme\n")
    kit.feed("in", '{"ad":"a"}')
    model = kit.yaml(REFRESHED.replace("SINK", "embedded"))
    runner = Runner(model, only=("t",), spark=kit.spark)
    runner.start()
    (run,) = runner.runs
    wait_for(lambda: table(kit, "t"))
    (kit.folder / "brands/1.csv").unlink()
    (kit.folder / "brands").rmdir()
    wait_for(run.ended)
    assert run.finding.code == "PATH_MISSING"
    assert run.finding.place.line == 5
