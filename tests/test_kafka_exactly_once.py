"""Kafka with a transaction a batch: what arrives, where it arrives, and what readers never see."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from evertable.errors import EvertableError
from evertable.project import open_pipeline
from evertable.run.faults import Fault
from kit import Failed


def pipeline(kit, kafka, query, topic="", more="", tables="", delivery="exactly_once"):
    address = kafka.broker.address
    return kit.yaml(f"""
name: p
streams:
  s: {{format: json, path: in, schema: "k STRING, n BIGINT", options: {{maxFilesPerTrigger: 1}}}}
tables:
  t:
    query: {query}
    trigger: available_now
    sink:
      format: kafka
      kafka.bootstrap.servers: "{address}"
      delivery: {delivery}
{f"      topic: {topic}" if topic else ""}
{more}
{tables}""")


def feed(kit, *rows):
    kit.feed("in", *(json.dumps({"k": k, "n": n}) for k, n in rows))


def test_key_headers_partition_and_topic_of_a_row(kit, kafka):
    a, b = kafka.topic("a", 3), kafka.topic("b", 3)
    feed(kit, ("x", 1), (None, 2))
    kit.run(pipeline(
        kit, kafka,
        f"\"SELECT k AS key, if(n = 1, 'one', NULL) AS value, if(n = 1, '{a}', '{b}') AS topic, "
        "CAST(2 AS INT) AS partition, array(named_struct('key', 'h', 'value', X'00FF')) AS headers "
        'FROM s"',
        more=f"      ledger_topic: {a}",
    ))  # fmt: skip
    (one,), (two,) = kafka.committed(a), kafka.committed(b)
    assert (one.key(), one.value(), one.partition(), one.headers()) == (
        b"x", b"one", 2, [("h", b"\x00\xff")],
    )  # fmt: skip
    assert (two.key(), two.value()) == (None, None)


def test_keys_go_to_the_partitions_that_java_puts_them(kit, kafka):
    ours, theirs = kafka.topic("ours", 7), kafka.topic("theirs", 7)
    feed(kit, *((f"key-{n}", n) for n in range(100)))
    query = "SELECT k AS key, k AS value FROM s"
    kit.run(pipeline(kit, kafka, query, ours))
    shutil.rmtree(kit.folder / ".evertable")
    kit.run(pipeline(kit, kafka, query, theirs, delivery="at_least_once"))
    where = [{m.key(): m.partition() for m in kafka.committed(t)} for t in (ours, theirs)]
    assert where[0] == where[1]
    assert len(set(where[0].values())) == 7


def test_what_was_not_committed_is_never_read(kit, kafka):
    topic = kafka.topic("t")
    for n in range(3):
        feed(kit, ("a", n))

    def at(point, table, batch):
        if (point, batch) == (Fault.AFTER_DATA, 1):
            raise RuntimeError

    p = pipeline(kit, kafka, "SELECT CAST(n AS STRING) AS value FROM s", topic)
    with pytest.raises(Failed):
        kit.run(p, at=at)
    kit.run(p)
    assert [m.value() for m in kafka.committed(topic)] == [b"0", b"1", b"2"]
    uncommitted = kafka.committed(topic, "read_uncommitted")
    assert sorted(m.value() for m in uncommitted) == [b"0", b"1", b"1", b"2"]  # one was aborted


def test_a_table_after_it_reads_committed_rows_only(kit, kafka):
    topic = kafka.topic("t")
    for n in range(3):
        feed(kit, ("a", n))

    def at(point, table, batch):
        if (point, batch, table) == (Fault.AFTER_DATA, 1, "t"):
            raise RuntimeError

    after = """
  after: {query: SELECT CAST(value AS STRING) AS n FROM t, trigger: available_now}
"""
    p = pipeline(kit, kafka, "SELECT CAST(n AS STRING) AS value FROM s", topic, tables=after)
    with pytest.raises(Failed):
        kit.run(p, at=at)
    kit.run(p)
    assert kit.rows("after") == [("0",), ("1",), ("2",)]


@pytest.mark.parametrize(
    ("topic", "more", "code"),
    [
        ("", "", "OPTION_MISSING"),
        ("t", "      kafka.transactional.id: mine", "OPTION_MISPLACED"),
        ("t", "      kafka.ssl.truststore.location: /x.jks", "OPTION_MISPLACED"),
        ("t", "      kafka.linger: 5", "OPTION_UNKNOWN"),
        ("t", "      partitioner: mine", "OPTION_INVALID"),
        ("t", "      includeHeaders: true", "OPTION_UNKNOWN"),
    ],
)
def test_options_are_those_of_its_client(kit, kafka, topic, more, code):
    with pytest.raises(EvertableError, match=code):
        pipeline(kit, kafka, "SELECT k AS value FROM s", topic, more)


def test_a_topic_that_is_not_there_is_said_before_the_start(kit, kafka):
    feed(kit, ("a", 1))
    with pytest.raises(EvertableError, match="TOPIC_MISSING"):
        kit.run(pipeline(kit, kafka, "SELECT k AS value FROM s", "nowhere"))


def test_a_broker_that_is_not_there(kit, kafka):
    feed(kit, ("a", 1))
    pipeline(kit, kafka, "SELECT k AS value FROM s", "t")
    kit.file.write_text(kit.file.read_text().replace(kafka.broker.address, "127.0.0.1:1"))
    with pytest.raises(EvertableError, match="SINK_UNREACHABLE"):
        kit.run(open_pipeline(str(kit.file)))


def test_show_release_and_drop(kit, kafka):
    topic = kafka.topic("t")
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, kafka, "SELECT k AS value FROM s", topic))

    def cli(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "evertable", *arguments],
            cwd=kit.folder, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    (one,) = json.loads(cli("sink", "show", "t", "--json").stdout)["sinks"]
    assert one["batch"] == 0
    assert topic in one["target"]
    done = cli("drop", "t", "--yes")
    assert done.returncode == 0, done.stderr
    assert "belongs to nobody" in cli("sink", "show", "t").stdout
    kit.run(pipeline(kit, kafka, "SELECT k AS value FROM s", topic))
    assert len(kafka.committed(topic)) == 2
