"""Continuous and real-time triggers: what they deliver, and what they cannot."""

from __future__ import annotations

import io
import json
import time

import pytest

from evertable.cli.run import JsonLines
from evertable.cli.terminal import Terminal
from evertable.errors import EvertableError
from evertable.run.runner import Runner
from evertable.run.slots import Need, slots_of, too_few
from evertable.spark import printed
from kit import wait_for

KAFKA = """
name: p
spark: {{master: "local[2]"}}
streams:
  s:
    format: kafka
    options: {{kafka.bootstrap.servers: "{address}", subscribe: {topic}, startingOffsets: earliest}}
tables:
  t:
    query: {query}
    output_mode: {mode}
    trigger: {{{trigger}}}
    sink: {sink}
"""


def pipeline(kit, kafka, topic, trigger, sink, *, mode="update", query="SELECT value FROM s"):
    return kit.yaml(
        KAFKA.format(
            address=kafka.address, topic=topic, trigger=trigger, sink=sink, mode=mode, query=query
        )
    )


def kafka_sink(kafka, topic):
    return f'{{format: kafka, kafka.bootstrap.servers: "{kafka.address}", topic: {topic}}}'


class running:
    """A runner that is stopped whatever happens."""

    def __init__(self, kit, model):
        self.runner = Runner(model, spark=kit.spark, emit=kit.events.append)

    def __enter__(self):
        self.runner.start()
        return self.runner

    def __exit__(self, *error):
        self.runner.stop()


@pytest.mark.parametrize(
    ("trigger", "mode"), [("continuous: 1 second", "append"), ("real_time: 5 seconds", "update")]
)
def test_kafka_to_kafka_and_on_after_a_restart(kit, kafka, trigger, mode):
    a, b = kafka.topic("a"), kafka.topic("b")
    kafka.produce(a, "1", "2")
    query = "SELECT concat(CAST(value AS STRING), '!') AS value FROM s"
    model = pipeline(kit, kafka, a, trigger, kafka_sink(kafka, b), mode=mode, query=query)
    with running(kit, model):
        assert [m.value() for m in kafka.consume(b, 2)] == [b"1!", b"2!"]
        kafka.produce(a, "3")
        assert [m.value() for m in kafka.consume(b, 3)] == [b"1!", b"2!", b"3!"]
        committed = kit.folder / ".evertable/p/checkpoints/t/commits"
        wait_for(lambda: list(committed.glob("[0-9]*")))
    kafka.produce(a, "4")
    with running(kit, model):
        assert b"4!" in {m.value() for m in kafka.consume(b, until=b"4!")}


def test_real_time_with_state_needs_a_slot_for_each_task_of_its_shuffle(kit, kafka):
    a, b = kafka.topic("a"), kafka.topic("b")
    query = """SELECT CAST(value AS STRING) AS key, CAST(count(*) AS STRING) AS value
      FROM s GROUP BY value"""
    model = pipeline(kit, kafka, a, "real_time: 5 seconds", kafka_sink(kafka, b), query=query)
    with pytest.raises(EvertableError, match="needs 3 task slots"):
        Runner(model, spark=kit.spark).start()


def test_continuous_into_memory(kit, kafka):
    a = kafka.topic("a")
    kafka.produce(a, "1", "2")
    model = pipeline(kit, kafka, a, "continuous: 1 second", "memory", mode="append")
    with running(kit, model) as runner:
        table = runner.runs[0].session.table("t")
        wait_for(lambda: table.count() == 2)
        assert sorted(bytes(r.value) for r in table.collect()) == [b"1", b"2"]


def test_a_row_writer_in_real_time(kit, kafka):
    """Rows reach Python at the end of a batch, which ends with its interval."""
    kit.write(
        "writer.py",
        f"""
        class Writer:
            def process(self, row):
                with open("{kit.folder}/seen", "a") as file:
                    file.write(row.value + "\\n")
        def each_batch(rows, batch):
            pass
    """,
    )
    a = kafka.topic("a")
    kafka.produce(a, "1", "2")
    query = "SELECT CAST(value AS STRING) AS value FROM s"
    writer = '{format: python, call: "writer.py:Writer"}'
    model = pipeline(kit, kafka, a, "real_time: 5 seconds", writer, query=query)
    with running(kit, model):
        wait_for(lambda: (kit.folder / "seen").exists())
        wait_for(lambda: sorted((kit.folder / "seen").read_text().split()) == ["1", "2"])
    function = writer.replace("Writer", "each_batch")
    model = pipeline(kit, kafka, a, "real_time: 5 seconds", function, query=query)
    with pytest.raises(EvertableError, match="no batches to call a function with"):
        Runner(model, spark=kit.spark).start()


@pytest.mark.parametrize(
    ("trigger", "mode"), [("continuous: 1 second", "append"), ("real_time: 5 seconds", "update")]
)
def test_into_the_console_which_is_sparks_own(kit, kafka, trigger, mode, monkeypatch):
    """Its rows come through us, so that they are not in the middle of the lines of `run --json`."""
    said = io.StringIO()
    monkeypatch.setattr(printed, "_take", JsonLines(Terminal(said)).printed)
    a = kafka.topic("a")
    kafka.produce(a, "x", "y")
    query = "SELECT CAST(value AS STRING) AS value FROM s"
    model = pipeline(kit, kafka, a, trigger, "console", mode=mode, query=query)
    with running(kit, model) as runner:
        wait_for(lambda: "|    x|" in said.getvalue() and "|    y|" in said.getvalue())
    assert runner.failed() == []
    events = [json.loads(line) for line in said.getvalue().splitlines()]
    assert {event["event"] for event in events} == {"printed"}


@pytest.mark.parametrize(
    ("trigger", "sink", "mode", "query", "said"),
    [
        ("continuous: 1 second", "embedded", "append", "SELECT value FROM s", "embedded"),
        ("real_time: 5 seconds", "embedded", "update", "SELECT value FROM s", "embedded"),
        ("real_time: 5 seconds", "noop", "update", "SELECT value FROM s", "noop"),
        ("real_time: 5 seconds", "KAFKA", "append", "SELECT value FROM s", "update mode"),
        ("real_time: 1 second", "KAFKA", "update", "SELECT value FROM s", "5 seconds"),
        ("continuous: 1 second", "noop", "update", "SELECT count(*) AS value FROM s", "continuous"),
    ],
)
def test_what_they_cannot_is_refused_before_the_start(kit, kafka, trigger, sink, mode, query, said):
    a = kafka.topic("a")
    sink = kafka_sink(kafka, a) if sink == "KAFKA" else sink
    with pytest.raises(EvertableError) as e:
        kit.run(pipeline(kit, kafka, a, trigger, sink, mode=mode, query=query))
    (finding,) = e.value.findings
    assert finding.code in ("TRIGGER_NOT_SUPPORTED", "VALUE_INVALID")
    assert said in f"{finding.message} {finding.detail}"
    assert finding.place
    assert kit.spark.streams.active == []


def test_a_source_that_cannot_be_read_row_by_row(kit):
    kit.feed("in", "x")
    model = kit.yaml("""
name: p
streams:
  s: {format: text, path: in}
tables:
  t:
    query: SELECT value FROM s
    trigger: {continuous: 1 second}
    sink: noop
""")
    with pytest.raises(EvertableError) as e:
        Runner(model, spark=kit.spark).start()
    assert 'stream "s" (text)' in e.value.findings[0].message


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minPartitions", "maxTriggerDelay"])
def test_options_of_batches_are_refused_in_real_time_and_taken_in_batches(kit, kafka, option):
    """Spark refuses them after the start."""
    a, b = kafka.topic("a"), kafka.topic("b")
    kafka.produce(a, "1")
    sink = kafka_sink(kafka, b)
    given = f"startingOffsets: earliest, {option}: 1"
    text = KAFKA.replace("startingOffsets: earliest", given + ("s" * option.endswith("Delay")))

    def with_trigger(trigger):
        return kit.yaml(
            text.format(
                address=kafka.address, topic=a, trigger=trigger, sink=sink, mode="update",
                query="SELECT value FROM s",
            ).replace("{available_now}", "available_now")
        )  # fmt: skip

    with pytest.raises(EvertableError) as e:
        Runner(with_trigger("real_time: 5 seconds"), spark=kit.spark).start()
    (finding,) = e.value.findings
    assert (finding.code, finding.place.line) == ("TRIGGER_NOT_SUPPORTED", 6)
    assert finding.hint == f"leave {option} out: rows are read as they come"
    assert kit.spark.streams.active == []
    kit.run(with_trigger("available_now"))
    assert [m.value() for m in kafka.consume(b, 1)] == [b"1"]


@pytest.mark.parametrize(
    ("trigger", "mode"), [("continuous: 1 second", "append"), ("real_time: 5 seconds", "update")]
)
def test_fewer_slots_than_partitions_is_refused(kit, kafka, trigger, mode):
    """Spark reads the first partitions and never the others, with no error."""
    a, b = kafka.topic("a", 4), kafka.topic("b")
    model = pipeline(kit, kafka, a, trigger, kafka_sink(kafka, b), mode=mode)
    with pytest.raises(EvertableError) as e:
        Runner(model, spark=kit.spark).start()
    (finding,) = e.value.findings
    assert finding.code == "SLOTS_TOO_FEW"
    assert "needs 4 task slots" in finding.message
    assert "local[4]" in finding.hint


def test_slots_are_counted_over_all_tables(kit, kafka):
    a = kafka.topic("a", 2)
    model = pipeline(kit, kafka, a, "continuous: 1 second", "noop", mode="append")
    (t,) = model.tables
    from dataclasses import replace

    other = replace(t, name="u", trigger=replace(t.trigger, kind="default", interval=None))
    assert slots_of(t, [2], 0, 2) == 2
    assert slots_of(t, [1, None], 1, 2) == 4
    assert slots_of(other, [20], 1, 2) == 1
    assert too_few([Need(t, 2)], 2) is None
    assert too_few([Need(other, 1)], 1) is None
    finding = too_few([Need(t, 2), Need(other, 1)], 2)
    assert finding is not None
    assert "needs 3 task slots" in finding.message


ASYNC = ", asyncProgressTrackingEnabled: true}"


def test_progress_tracked_asynchronously(kit, kafka):
    a, b = kafka.topic("a"), kafka.topic("b")
    kafka.produce(a, "1", "2")
    sink = kafka_sink(kafka, b).replace("}", ASYNC)
    trigger = "processing_time: 10 milliseconds"
    model = pipeline(kit, kafka, a, trigger, sink, mode="append")
    with running(kit, model):
        assert [m.value() for m in kafka.consume(b, 2)] == [b"1", b"2"]
        begun = time.monotonic()
    assert time.monotonic() - begun < 10, "it does not wait for logs that are behind"
    kafka.produce(a, "3")
    with running(kit, model):
        assert b"3" in {m.value() for m in kafka.consume(b, until=b"3")}


@pytest.mark.parametrize(
    ("trigger", "sink", "query", "said"),
    [
        ("available_now", "KAFKA", "SELECT value FROM s", "available_now"),
        ("continuous: 1 second", "KAFKA", "SELECT value FROM s", "continuous"),
        ("processing_time: 1 second", "KAFKA", "SELECT DISTINCT value FROM s", "keeps state"),
        ("processing_time: 1 second", "[KAFKA, noop]", "SELECT value FROM s", "several sinks"),
        ("processing_time: 1 second", "{format: embedded" + ASYNC, "SELECT value FROM s",
         "no option"),
    ],
)  # fmt: skip
def test_asynchronous_progress_is_refused_where_spark_cannot(
    kit, kafka, trigger, sink, query, said
):
    a = kafka.topic("a")
    sink = sink.replace("KAFKA", kafka_sink(kafka, a).replace("}", ASYNC))
    mode = "update" if "DISTINCT" in query else "append"

    def start():
        model = pipeline(kit, kafka, a, trigger, sink, query=query, mode=mode)
        Runner(model, spark=kit.spark).start()

    with pytest.raises(EvertableError, match=said) as e:
        start()
    assert e.value.findings[0].place
