"""Kafka as source and sink, against a real broker; and everything that is said before a start."""

from __future__ import annotations

import json

import pytest

import evertable as et
from evertable.errors import EvertableError
from evertable.project import open_pipeline
from evertable.run.runner import Runner
from evertable.sources.registry import SOURCES
from evertable.spark.frames import Frames
from evertable.spark.schemas import SchemaStore
from kit import Failed


def source(kafka, more, query="SELECT CAST(value AS STRING) AS v FROM s", rest=""):
    return f"""
name: p
streams:
  s:
    format: kafka
    options: {{kafka.bootstrap.servers: "{kafka.address}", {more}}}
tables:
  t:
    query: {query}
    trigger: available_now
{rest}"""


def run(kit, kafka, more, query="SELECT CAST(value AS STRING) AS v FROM s", rest=""):
    kit.run(kit.yaml(source(kafka, f"startingOffsets: earliest, {more}", query, rest)))
    return kit.rows("t")


def refused(kit, text, code):
    """The one finding of a pipeline that does not start."""
    with pytest.raises((EvertableError, Failed)) as e:
        kit.run(kit.yaml(text))
    assert isinstance(e.value, EvertableError), f"only after the start: {e.value}"
    (finding,) = e.value.findings
    assert finding.code == code, finding
    assert finding.place, "an error has a place"
    return finding


# -- what is read --------------------------------------------------------------------------


def test_every_column_of_a_record(kit, kafka):
    topic = kafka.topic("a", 2)
    kafka.produce(topic, b"v", key="k", partition=1, headers=[("h", b"x"), ("none", None)])
    kafka.produce(topic, None, key="gone", partition=1, timestamp=1_700_000_000_123)
    rows = run(
        kit, kafka, f"subscribe: {topic}, includeHeaders: true",
        "SELECT CAST(key AS STRING) AS k, CAST(value AS STRING) AS v, topic, `partition`, `offset`,"
        " unix_millis(timestamp) > 1700000000122 AS at, transform(headers, h -> concat(h.key, '=',"
        " coalesce(CAST(h.value AS STRING), '-'))) AS h FROM s",
    )  # fmt: skip
    assert [r[:6] for r in rows] == [
        ("gone", None, topic, 1, 1, True),
        ("k", "v", topic, 1, 0, True),
    ]
    assert "h=x" in rows[1][6]
    assert "none=-" in rows[1][6]


def test_topics_by_list_pattern_and_partition(kit, kafka):
    a, b = kafka.topic("one", 2), kafka.topic("two")
    for partition in (0, 1):
        kafka.produce(a, f"a{partition}", partition=partition)
    kafka.produce(b, "b")
    assert run(kit, kafka, f'subscribe: "{a}, {b}"') == [("a0",), ("a1",), ("b",)]
    prefix = a.removesuffix("one")
    more = f"startingOffsets: earliest, subscribePattern: '{prefix}.*'"
    kit.file = kit.write("again/p.yaml", source(kafka, more))
    kit.run(open_pipeline(str(kit.file)))
    assert kit.rows("t") == [("a0",), ("a1",), ("b",)]
    assigned = json.dumps({a: [1]})
    kit.write("third/p.yaml", source(kafka, f"startingOffsets: earliest, assign: '{assigned}'"))
    kit.file = kit.folder / "third" / "p.yaml"
    kit.run(open_pipeline(str(kit.file)))
    assert kit.rows("t") == [("a1",)]


def test_starting_offsets_timestamps_and_a_restart(kit, kafka):
    topic = kafka.topic("a")
    for n in range(4):
        kafka.produce(topic, str(n), timestamp=1_700_000_000_000 + n)
    text = source(kafka, f"subscribe: {topic}, startingOffsets: '{json.dumps({topic: {'0': 2}})}'")
    kit.run(kit.yaml(text))
    assert kit.rows("t") == [("2",), ("3",)]
    kafka.produce(topic, "4")
    kit.run(kit.yaml(text))  # goes on, whatever startingOffsets says
    assert kit.rows("t") == [("2",), ("3",), ("4",)]
    kit.write("b/p.yaml", source(kafka, f"subscribe: {topic}, startingTimestamp: 1700000000003"))
    kit.file = kit.folder / "b" / "p.yaml"
    kit.run(open_pipeline(str(kit.file)))
    assert kit.rows("t") == [("3",), ("4",)]


def test_a_cap_cuts_batches(kit, kafka):
    topic = kafka.topic("a")
    kafka.produce(topic, *map(str, range(10)))
    rows = run(kit, kafka, f"subscribe: {topic}, maxOffsetsPerTrigger: 4")
    assert sorted(int(v) for (v,) in rows) == list(range(10))
    assert [e.rows_in for e in kit.events if hasattr(e, "rows_in")][:3] == [4, 4, 2]


def test_a_batch_has_a_cap_by_default_where_rows_come_in_batches(kit, kafka):
    model = kit.yaml(source(kafka, "subscribe: a"))
    (stream,) = model.streams
    for batched, wanted in ((True, "1000000"), (False, None)):
        frames = Frames(kit.spark, model, SOURCES, SchemaStore("none"), batched=batched)
        options = frames.options(stream, SOURCES["kafka"], "s")
        assert options.get("maxOffsetsPerTrigger") == wanted


def test_a_topic_as_a_static_table(kit, kafka):
    topic = kafka.topic("brands")
    kafka.produce(topic, "kestrel", key="a")
    kit.feed("in", "a", "b")
    kit.run(
        kit.yaml(f"""
name: p
streams:
  s: {{format: text, path: in}}
statics:
  brands:
    format: kafka
    options: {{kafka.bootstrap.servers: "{kafka.address}", subscribe: {topic}}}
tables:
  t:
    query: SELECT s.value, CAST(b.value AS STRING) AS brand FROM s JOIN brands b
      ON s.value = CAST(b.key AS STRING)
    trigger: available_now
""")
    )
    assert kit.rows("t") == [("a", "kestrel")]


def test_preview_reads_a_piece_of_a_topic(kit, kafka, capsys):
    from evertable.cli.main import main

    topic = kafka.topic("a")
    kafka.produce(topic, "x", "y", "z")
    kit.yaml(source(kafka, f"subscribe: {topic}"))
    assert main(["preview", "t", "--rows", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_the_python_door(kit, kafka):
    a, b = kafka.topic("a"), kafka.topic("b")
    kafka.produce(a, '{"ad":"x","n":1}', '{"ad":"y","n":2}')
    p = et.Pipeline("p", storage=str(kit.folder / ".evertable"))
    p.stream(
        "s",
        format="kafka",
        options={
            "kafka.bootstrap.servers": kafka.address, "subscribe": a, "startingOffsets": "earliest"
        },
        decode=et.json("ad STRING, n INT"),
    )  # fmt: skip

    @p.table(trigger=et.available_now(), sink=et.kafka(kafka.address, topic=b))
    def out(s):
        return s.selectExpr("ad AS key", "CAST(n * 10 AS STRING) AS value")

    p.start(spark=kit.spark)
    p.wait()
    found = {m.key(): m.value() for m in kafka.consume(b, 2)}
    assert found == {b"x": b"10", b"y": b"20"}


# -- what is written -----------------------------------------------------------------------


def out_of(kit, kafka, query, sink):
    kit.feed("in", "a", "b")
    kit.run(
        kit.yaml(f"""
name: p
streams:
  s: {{format: text, path: in}}
tables:
  t:
    query: {query}
    trigger: available_now
    sink: {{format: kafka, kafka.bootstrap.servers: "{kafka.address}", {sink}}}
""")
    )


def test_key_value_headers_and_a_topic_for_each_row(kit, kafka):
    a, b = kafka.topic("a"), kafka.topic("b")
    out_of(
        kit, kafka,
        f"""SELECT value AS key, upper(value) AS value, if(value = 'a', '{a}', '{b}') AS topic,
        array(named_struct('key', 'from', 'value', CAST('s' AS BINARY))) AS headers FROM s""",
        "includeHeaders: true",
    )  # fmt: skip
    (first,) = kafka.consume(a, 1)
    (second,) = kafka.consume(b, 1)
    assert (first.key(), first.value(), first.headers()) == (b"a", b"A", [("from", b"s")])
    assert (second.key(), second.value()) == (b"b", b"B")


def test_a_restart_after_the_sink_was_written_is_at_least_once(kit, kafka):
    topic = kafka.topic("a")
    out_of(kit, kafka, "SELECT value FROM s", f"topic: {topic}")
    kit.feed("in", "c")
    kit.run(open_pipeline("p.yaml"))
    assert sorted(m.value() for m in kafka.consume(topic, 3)) == [b"a", b"b", b"c"]


# -- what is refused before the start ------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ("subscribe: a, startingoffsetz: earliest", "OPTION_UNKNOWN", "startingOffsets"),
        ("subscribe: a, group.id: g", "OPTION_UNKNOWN", "kafka.group.id"),
        ("subscribe: a, kafka.auto.offset.reset: earliest", "OPTION_MISPLACED", "startingOffsets"),
        ("subscribe: a, kafka.enable.auto.commit: true", "OPTION_MISPLACED", "checkpoint"),
        ("subscribe: a, endingOffsets: latest", "OPTION_UNKNOWN", ""),
        ("subscribe: a, maxOffsetsPerTrigger: abc", "OPTION_INVALID", "abc"),
        ("subscribe: a, startingOffsets: beginning", "OPTION_INVALID", "beginning"),
        ("subscribe: a, failOnDataLoss: maybe", "OPTION_INVALID", "maybe"),
        ("subscribe: a, subscribePattern: b", "OPTIONS_EXCLUDE", "subscribe"),
        ("startingOffsets: earliest", "OPTION_MISSING", "subscribe"),
        ("subscribePattern: '['", "OPTION_INVALID", "regular expression"),
        ("assign: '[1]'", "OPTION_INVALID", "form"),
    ],
)
def test_options_are_refused_without_spark(tmp_path, more, code, said):
    class Nowhere:
        address = "127.0.0.1:9"

    (tmp_path / "p.yaml").write_text(source(Nowhere, more))
    with pytest.raises(EvertableError) as e:
        open_pipeline(str(tmp_path / "p.yaml"))
    assert [f.code for f in e.value.findings] == [code]
    (finding,) = e.value.findings
    assert said in f"{finding.message} {finding.hint} {finding.detail}"
    assert finding.place


def test_a_missing_topic_is_named_with_its_broker(kit, kafka):
    finding = refused(kit, source(kafka, "subscribe: nosuch"), "TOPIC_MISSING")
    assert '"nosuch"' in finding.message
    assert kafka.address in finding.detail


def test_a_dead_broker_is_named_with_its_address(kit):
    class Dead:
        address = "127.0.0.1:9"

    finding = refused(kit, source(Dead, "subscribe: a"), "BROKER_UNREACHABLE")
    assert "127.0.0.1:9" in finding.message


def test_a_partition_that_is_not_there(kit, kafka):
    topic = kafka.topic("a", 2)
    assigned = json.dumps({topic: [0, 5]})
    finding = refused(kit, source(kafka, f"assign: '{assigned}'"), "OPTION_INVALID")
    assert "partition 5" in finding.message


def test_starting_offsets_that_leave_out_a_partition(kit, kafka):
    topic = kafka.topic("a", 2)
    offsets = json.dumps({topic: {"0": 0}})
    text = source(kafka, f"subscribe: {topic}, startingOffsets: '{offsets}'")
    finding = refused(kit, text, "OPTION_INVALID")
    assert f"{topic}-1" in finding.message


def test_a_starting_timestamp_after_the_last_row(kit, kafka):
    topic = kafka.topic("a")
    kafka.produce(topic, "x", timestamp=1_700_000_000_000)
    more = f"subscribe: {topic}, startingTimestamp: 1800000000000"
    finding = refused(kit, source(kafka, more), "OPTION_INVALID")
    assert "latest" in finding.hint
    kit.run(kit.yaml(source(kafka, f"{more}, startingOffsetsByTimestampStrategy: latest")))
    assert kit.rows("t") == []


def test_a_topic_that_was_made_again_is_refused(kit, kafka):
    """Spark itself reads on at the old offset, and skips what is before it, in silence."""
    topic = kafka.topic("a")
    kafka.produce(topic, "old1", "old2")
    text = source(kafka, f"subscribe: {topic}, startingOffsets: earliest")
    kit.run(kit.yaml(text))
    kafka.delete(topic)
    kafka.broker.create_topic(topic, 1)
    kafka.produce(topic, "new1", "new2", "new3")
    finding = refused(kit, text, "TOPIC_RECREATED")
    assert topic in finding.message
    assert kit.rows("t") == [("old1",), ("old2",)]


def test_rows_that_the_broker_deleted_before_they_were_read(kit, kafka):
    from confluent_kafka import TopicPartition

    topic = kafka.topic("a")
    kafka.produce(topic, "1")
    text = source(kafka, f"subscribe: {topic}, startingOffsets: earliest")
    kit.run(kit.yaml(text))
    kafka.produce(topic, "2", "3")
    for deleted in kafka.admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        deleted.result(20)
    with pytest.raises(Failed) as e:
        kit.run(kit.yaml(text))
    assert e.value.finding.code == "SOURCE_ROWS_LOST"
    assert kit.rows("t") == [("1",)]


@pytest.mark.parametrize(
    ("query", "sink", "said"),
    [
        ("SELECT 1 AS value FROM s", "topic: a", "value"),
        ("SELECT value AS v FROM s", "topic: a", '"value"'),
        ("SELECT value FROM s", "includeHeaders: true", "topic"),
        ("SELECT value, 1 AS headers FROM s", "topic: a", "headers"),
        ("SELECT value, 'x' AS extra FROM s", "topic: a", "extra"),
    ],
)
def test_columns_that_the_sink_does_not_take(kit, kafka, query, sink, said):
    with pytest.raises(EvertableError) as e:
        out_of(kit, kafka, query, sink)
    (finding,) = e.value.findings
    assert finding.code == "SINK_COLUMNS"
    assert said in finding.message


def test_a_missing_topic_and_a_dead_broker_of_a_sink(kit, kafka):
    with pytest.raises(EvertableError, match="TOPIC_MISSING"):
        out_of(kit, kafka, "SELECT value FROM s", "topic: nosuch")

    class Dead:
        address = "127.0.0.1:9"

    with pytest.raises(EvertableError, match="BROKER_UNREACHABLE"):
        out_of(kit, Dead, "SELECT value FROM s", "topic: a")


def test_check_says_what_it_can_without_the_broker(kit, capsys):
    from evertable.cli.main import main

    class Dead:
        address = "127.0.0.1:9"

    kit.yaml(source(Dead, "subscribe: a"))
    assert main(["check"]) == 0
    assert "BROKER_UNREACHABLE p.yaml:5: warning:" in capsys.readouterr().out


def test_nothing_is_half_started_by_a_refusal(kit):
    class Dead:
        address = "127.0.0.1:9"

    runner = Runner(kit.yaml(source(Dead, "subscribe: a")), spark=kit.spark)
    with pytest.raises(EvertableError):
        runner.start()
    assert not (kit.folder / ".evertable/p/checkpoints/t/metadata").exists()
    assert kit.spark.streams.active == []
