"""SIGKILL at every named moment and at random ones, for sinks outside: Postgres, Kafka, one's own.

Rows, watermark, state and counts of late rows must equal those of a run that nobody disturbed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sqlite3
import sys
import threading
import time
import uuid
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest
import yaml

from evertable.run.faults import Fault
from evertable.spark.checkpoint import Checkpoint
from evertable.testing.broker import Broker
from evertable.testing.postgres import Postgres
from lives import (
    compare,
    finish,
    kill_at,
    kill_at_random,
    outcome,
    start,
    write_input,
    written,
)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests"))
from targets import OWN_SINK

FUNCTIONS = """
import sqlite3


def keeper(table):
    def keep(rows, batch):
        lines = [(batch, line) for line in rows.toJSON().collect()]
        connection = sqlite3.connect(f"{table}.sqlite")
        with connection:
            connection.execute("CREATE TABLE IF NOT EXISTS calls (batch)")
            connection.execute("CREATE TABLE IF NOT EXISTS rows (batch, value)")
            connection.execute("INSERT INTO calls VALUES (?)", (batch,))
            connection.executemany("INSERT INTO rows VALUES (?, ?)", lines)
        connection.close()
    return keep


plain, windowed, updated, completed = map(keeper, ("plain", "windowed", "updated", "completed"))
"""
BATCHES = 7
PIPELINE = """
name: p
spark: {master: "local[2]"}
streams:
  s:
    format: json
    path: in
    schema: "id INT, ad STRING, at TIMESTAMP, n INT"
    watermark: {column: at, delay: 2 minutes}
    options: {maxFilesPerTrigger: 1}
tables:
  plain:
    query: SELECT id, ad, n FROM s
    trigger: available_now
    sink: SINK
  windowed:
    query: |
      SELECT window.start AS w, ad, count(*) AS c, sum(n) AS n FROM s
      GROUP BY window(at, '5 minutes'), ad
    trigger: available_now
    sink: SINK
  updated:
    query: SELECT ad, sum(n) AS n, count(*) AS c FROM s GROUP BY ad
    output_mode: update
    trigger: available_now
    sink: SINK
  completed:
    query: SELECT ad, max(id) AS newest FROM s GROUP BY ad
    output_mode: complete
    trigger: available_now
    sink: SINK
"""
TABLES = ("plain", "windowed", "updated", "completed")
STATEFUL = {t: {} for t in TABLES[1:]}
KINDS = ("postgres", "staged", "kafka", "own", "function")
POINTS = [
    (kind, table, point, batch)
    for batch in (1, BATCHES - 1, BATCHES)  # the last one: the no-data batch that closes windows
    for kind in KINDS
    for table in TABLES
    for point in Fault
    if batch < BATCHES or table == "windowed"
]
MANY = {
    "test_killed_at_a_named_moment": ("kind, table, point, batch", POINTS, 31),
    "test_killed_at_random_moments": (
        "kind, seed", [(kind, seed) for seed in range(7) for kind in KINDS], 18,
    ),
    "test_the_server_is_stopped_at_once": (
        "kind, seed", [(kind, seed) for seed in range(1, 4) for kind in ("postgres", "staged")], 6,
    ),
}  # fmt: skip


class World:
    """The servers, and what is in them."""

    def __init__(self, kind: str, postgres: Postgres, broker: Broker) -> None:
        self.kind = kind
        self.postgres = postgres
        self.broker = broker
        self.run = uuid.uuid4().hex[:10]

    def lay_out(self, folder: Path) -> Path:
        self.late_rows = write_input(folder, BATCHES)
        (folder / "store.py").write_text(OWN_SINK)
        (folder / "keep.py").write_text(FUNCTIONS)
        document = yaml.safe_load(PIPELINE)
        document["name"] = f"p{self.run}"
        for table, entry in document["tables"].items():
            entry["sink"] = yaml.safe_load(self.sink(table, folder))
            if self.kind == "kafka":
                entry["query"] = f"SELECT to_json(struct(*)) AS value FROM ({entry['query']})"
        (folder / "p.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        return folder

    def sink(self, table: str, folder: Path) -> str:
        name = f"{table}_{self.run}"
        if self.kind == "kafka":
            self.broker.create_topic(name, 1)
            return (
                f"{{format: kafka, delivery: exactly_once, topic: {name}, "
                f'kafka.bootstrap.servers: "{self.broker.address}"}}'
            )
        if self.kind == "own":
            return f'{{format: python, call: "store.py:Store", file: "{folder / table}.sqlite"}}'
        if self.kind == "function":
            return f'{{format: python, call: "keep.py:{table}", ledger: embedded}}'
        more = ", staging: always" if self.kind == "staged" else ""
        return f'{{format: postgres, url: "{self.postgres.url}", table: {name}{more}}}'

    def rows(self, table: str, folder: Path) -> list[str]:
        name = f"{table}_{self.run}"
        if self.kind == "kafka":
            return what_counts(table, committed(self.broker.address, name), appends=True)
        if self.kind == "own":
            lines = sqlite(folder, table, "SELECT value FROM rows ORDER BY rowid")
            return what_counts(table, lines, appends=table != "completed")
        if self.kind == "function":
            once = "SELECT value FROM rows GROUP BY batch, value ORDER BY min(rowid)"
            return what_counts(table, sqlite(folder, table, once), appends=True)
        connection = psycopg2.connect(self.postgres.url)
        cursor = connection.cursor()
        cursor.execute(f"SELECT * FROM {name}")
        rows = sorted(map(repr, cursor.fetchall()))
        connection.close()
        return rows

    def repeated(self, table: str, folder: Path) -> list[int]:
        """The batches that a function got again, as often as it did."""
        calls = sqlite(folder, table, "SELECT batch FROM calls ORDER BY rowid")
        for batch in set(calls):
            calls.remove(batch)
        return calls

    def staged(self, table: str, folder: Path) -> int:
        """How many rows are in the staging tables of a table."""
        query_id = Checkpoint(f"{folder}/.evertable/p{self.run}/checkpoints/{table}").query_id()
        mark = hashlib.sha256(f"{query_id} public.{table}_{self.run}".encode()).hexdigest()[:16]
        connection = psycopg2.connect(self.postgres.url)
        cursor = connection.cursor()
        cursor.execute(
            "SELECT tablename FROM pg_tables WHERE starts_with(tablename, %s)",
            (f"_evertable_staged_{mark}_",),
        )
        found = 0
        for (name,) in cursor.fetchall():
            cursor.execute(f"SELECT count(*) FROM {name}")
            found += cursor.fetchone()[0]
        connection.close()
        return found

    def outcome(self, folder: Path, spark) -> dict:
        os.symlink(folder / f".evertable/p{self.run}", folder / ".evertable/p")
        found = outcome(folder, spark, others=TABLES, stateful=STATEFUL)
        for table in TABLES:
            found[table, "rows"] = self.rows(table, folder)
            assert found[table, "rows"]
        return found


def begun(folder: Path) -> set[Path]:
    """The checkpoints in which a batch was begun."""
    return {note.parent.parent for note in written(folder)}


def sqlite(folder: Path, table: str, query: str) -> list:
    with closing(sqlite3.connect(f"{folder / table}.sqlite")) as connection:
        return [value for (value,) in connection.execute(query)]


def what_counts(table: str, lines: list[str], *, appends: bool) -> list[str]:
    """A target that only appends has every version of a row; of each key the newest counts."""
    if appends and table in ("updated", "completed"):
        lines = list({json.loads(line)["ad"]: line for line in lines}.values())
    return sorted(lines)


def committed(address: str, topic: str) -> list[str]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": uuid.uuid4().hex, "log_level": 0,
            "isolation.level": "read_committed", "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        for message in consumer.consume(10_000, 1):
            if message.error():
                consumer.close()
                return found
            found.append(message.value().decode())


@pytest.fixture(scope="module")
def postgres():
    with Postgres() as running:
        yield running


@pytest.fixture(scope="module")
def broker():
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def worlds(postgres, broker):
    return lambda kind: World(kind, postgres, broker)


@pytest.fixture(scope="module")
def truths(tmp_path_factory, spark, worlds):
    """What a run gives that nobody disturbs, for each kind of sink."""
    known = {}

    def truth(kind):
        kind = "postgres" if kind == "staged" else kind  # the way there makes no difference
        if kind not in known:
            world = worlds(kind)
            folder = world.lay_out(tmp_path_factory.mktemp("undisturbed") / "p")
            finish(folder)
            known[kind] = world.outcome(folder, spark)
            assert known[kind]["windowed", "late"] == world.late_rows > 0
        return known[kind]

    return truth


def test_killed_at_a_named_moment(kind, table, point, batch, tmp_path, spark, worlds, truths):
    world = worlds(kind)
    folder = world.lay_out(tmp_path / "p")
    (folder / ".evertable").mkdir()
    kill_at(folder, table, point, batch, pipeline=f"p{world.run}")
    if kind == "staged" and table != "windowed":  # which emits nothing yet in batch 1
        assert (world.staged(table, folder) > 0) == (point is Fault.AFTER_DATA)
    finish(folder)
    if kind == "function":  # work and ledger are two commits: between them is where it may repeat
        for other in TABLES:
            assert len(world.repeated(other, folder)) <= 1
        again = [batch] if point is Fault.AFTER_DATA else []
        assert world.repeated(table, folder) == again
    found = world.outcome(folder, spark)
    assert found[table, "late"] is not None
    compare(folder, found, truths(kind))


def test_killed_at_random_moments(kind, seed, tmp_path, spark, worlds, truths):
    world = worlds(kind)
    folder = world.lay_out(tmp_path / "p")
    kills = kill_at_random(folder, seed, 2 * BATCHES * len(TABLES))
    finish(folder)
    if kind == "function":
        for table in TABLES:
            assert len(world.repeated(table, folder)) <= kills
    compare(folder, world.outcome(folder, spark), truths(kind))


def test_the_server_is_stopped_at_once(kind, seed, tmp_path, spark, broker, truths):
    """Immediate stops while it runs: it backs off, and ends by itself with the right rows.

    They begin when every table has: a sink that is down at the first start is refused.
    """
    chance = random.Random(seed)
    with Postgres() as server:
        world = World(kind, server, broker)
        folder = world.lay_out(tmp_path / "p")
        victim = start(folder)
        stops = 0
        errors: list[str] = []
        said = threading.Thread(target=lambda: errors.append(victim.communicate()[1]))
        said.start()
        while victim.poll() is None and len(begun(folder)) < len(TABLES):
            time.sleep(0.005)
        while victim.poll() is None and stops < 10:
            time.sleep(chance.uniform(0.3, 1.5) if stops else 0)
            if victim.poll() is None:
                server.kill()
                server.start()
                stops += 1
        said.join(120)
        assert victim.returncode == 0, errors
        assert stops >= 4, "it was over before it was disturbed"
        compare(folder, world.outcome(folder, spark), truths(kind))
