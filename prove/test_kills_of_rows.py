"""The same proof for rows from Kafka, state in Python, several sinks, a table after a table."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest

from evertable.run.faults import Fault
from evertable.testing.broker import Broker
from lives import compare, finish, kill_at, kill_at_random, outcome

BATCHES = 6
ROWS = 40  # a batch
PIPELINE = """
name: p
spark: {{master: "local[2]"}}
streams:
  s:
    format: kafka
    options:
      kafka.bootstrap.servers: "{address}"
      subscribe: {topic}
      startingOffsets: earliest
      maxOffsetsPerTrigger: 40
    decode: {{format: json, schema: "id INT, ad STRING, at TIMESTAMP, n INT"}}
    watermark: {{column: at, delay: 2 minutes}}
tables:
  windowed:
    query: SELECT window(at, '5 minutes') AS w, ad, count(*) AS c, sum(n) AS n FROM s GROUP BY 1, 2
    trigger: available_now
  totals:
    query: {{python: "work.py:totals"}}
    output_mode: update
    key: ad
    trigger: available_now
  both:
    query: SELECT id, ad, n FROM s
    trigger: available_now
    sink: [embedded, {{format: json, path: both}}]
  after:
    query: SELECT ad, count(*) AS c, sum(n) AS n FROM both GROUP BY ad
    output_mode: update
    trigger: available_now
"""
WORK = """
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class Totals(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n LONG, c LONG")

    def handleInputRows(self, key, rows, timerValues):
        n, c = self.total.get() if self.total.exists() else (0, 0)
        for row in rows:
            n, c = n + row.n, c + 1
        self.total.update((n, c))
        yield Row(ad=key[0], n=n, c=c)

    def close(self):
        pass


def totals(s):
    return s.groupBy("ad").transformWithState(
        Totals(), "ad STRING, n LONG, c LONG", "Update", "None")
"""
TABLES = {
    "embedded": ("windowed", "totals", "both", "after"),
    "folders": {"both": "both"},
    "stateful": {"windowed": {}, "totals": {"stateVarName": "total"}, "after": {}},
}
MANY = {
    "test_killed_at_a_named_moment": (
        "table, point, batch",
        [
            (table, point, batch)
            for batch in (1, BATCHES - 1)
            for table in ("totals", "both", "windowed")
            for point in Fault
        ],
        8,
    ),
    "test_killed_at_random_moments": ("seed", list(range(7)), 7),
}


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


def lay_out(folder: Path, broker: Broker) -> Path:
    from confluent_kafka import Producer

    chance = random.Random(1)
    topic = f"t{uuid.uuid4().hex}"
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    for number in range(BATCHES * ROWS):
        minute = number / 10 + chance.uniform(-1.5, 1.5) + 2
        producer.produce(
            topic,
            f'{{"id":{number},"ad":"{chance.choice("abcdef")}","n":{chance.randrange(100)},'
            f'"at":"2026-01-01T12:{int(minute):02}:{int(minute % 1 * 60):02}Z"}}',
        )
    producer.flush(30)
    folder.mkdir(parents=True)
    (folder / "p.yaml").write_text(PIPELINE.format(address=broker.address, topic=topic))
    (folder / "work.py").write_text(WORK)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, spark, broker):
    folder = lay_out(tmp_path_factory.mktemp("undisturbed") / "p", broker)
    finish(folder)
    found = outcome(folder, spark, **TABLES)
    ids = sorted(int(row.split(",")[0].strip("(")) for row in found["both", "rows"])
    assert ids == list(range(BATCHES * ROWS))
    return found


def test_killed_at_a_named_moment(table, point, batch, tmp_path, spark, broker, undisturbed):
    folder = lay_out(tmp_path / "p", broker)
    kill_at(folder, table, point, batch)
    finish(folder)
    compare(folder, outcome(folder, spark, **TABLES), undisturbed)


def test_killed_at_random_moments(seed, tmp_path, spark, broker, undisturbed):
    folder = lay_out(tmp_path / "p", broker)
    kill_at_random(folder, seed, 2 * BATCHES * 3)  # `after` cuts its input as it likes
    finish(folder)
    compare(folder, outcome(folder, spark, **TABLES), undisturbed)
