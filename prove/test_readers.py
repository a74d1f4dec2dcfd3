"""Somebody reads in a loop while 200 batches are written: no error, and never a part of a batch."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import uuid
from pathlib import Path

import psycopg2
import pyarrow.parquet as pq
import pytest

from lives import start

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests"))
from targets import OWN_SINK

BATCHES, ROWS = 200, 50
PIPELINE = """
name: p
spark: {master: "local[2]"}
streams:
  s: {format: json, path: in, schema: "k INT", options: {maxFilesPerTrigger: 1}}
tables:
  t:
    query: QUERY
    trigger: available_now
    sink: SINK
"""
KINDS = ["embedded", "postgres", "staged", "kafka", "files", "own"]
MANY = {"test_a_reader_sees_whole_batches": ("kind", KINDS, 2)}


class Reader:
    """One kind of sink, and a client of its own that counts rows."""

    def __init__(self, kind, folder, request):
        self.kind, self.folder = kind, folder
        self.name = f"t{uuid.uuid4().hex[:10]}"
        if kind in ("postgres", "staged"):
            self.server = request.getfixturevalue("postgres")
            self.connection = psycopg2.connect(self.server.url)
            self.connection.autocommit = True
        if kind == "kafka":
            self.broker = request.getfixturevalue("broker")
            self.broker.create_topic(self.name, 1)
            self.consumer = consumer(self.broker.address, self.name)
            self.count, self.at_end = 0, None

    def sink(self) -> str:
        more = ", staging: always" if self.kind == "staged" else ""
        match self.kind:
            case "embedded":
                return "embedded"
            case "postgres" | "staged":
                return f'{{format: postgres, url: "{self.server.url}", table: {self.name}{more}}}'
            case "kafka":
                return (
                    f"{{format: kafka, delivery: exactly_once, topic: {self.name}, "
                    f'kafka.bootstrap.servers: "{self.broker.address}"}}'
                )
            case "files":
                return "{format: parquet, path: out}"
        return '{format: python, call: "store.py:Store", file: own.sqlite}'

    def read(self) -> int | None:
        """How many rows there are now; None while there is no target yet."""
        match self.kind:
            case "embedded":
                return self.sqlite(".evertable/p/tables/t.sqlite", "t")
            case "own":
                return self.sqlite("own.sqlite", "rows")
            case "files":
                return self.files()
            case "kafka":
                return self.records()
        cursor = self.connection.cursor()
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (self.name,))
        if not cursor.fetchone()[0]:
            return None
        cursor.execute(f"SELECT count(*) FROM {self.name}")
        return cursor.fetchone()[0]

    def sqlite(self, file, table):
        path = self.folder / file
        if not path.exists():
            return None
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            known = "SELECT 1 FROM sqlite_master WHERE name = ?"
            if connection.execute(known, (table,)).fetchone() is None:
                return None
            return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        finally:
            connection.close()

    def files(self):
        """By the log of the folder, as every reader of Spark's file sink has to."""
        log = self.folder / "out/_spark_metadata"
        names = [n for n in os.listdir(log) if n[0].isdigit()] if log.exists() else []
        if not names:
            return None
        compact = [n for n in names if n.endswith(".compact")]
        newest = max(compact, key=lambda n: int(n.split(".")[0]), default=None)
        since = int(newest.split(".")[0]) if newest else -1
        wanted = [newest] if newest else []
        wanted += [n for n in names if n.isdigit() and int(n) > since]
        rows = 0
        for name in wanted:
            for line in (log / name).read_text().splitlines()[1:]:
                path = json.loads(line)["path"].removeprefix("file://")
                rows += pq.read_metadata(path).num_rows
        return rows

    def records(self):
        """How many there were when the end of what is committed was seen last.

        The end is told once, and again only after more has come.
        """
        while True:
            found = self.consumer.consume(10_000, 0.05)
            for message in found:
                if message.error():
                    self.at_end = self.count
                else:
                    self.count += 1
            if self.count == self.at_end or any(message.error() for message in found):
                return self.at_end


def consumer(address, topic):
    from confluent_kafka import Consumer, TopicPartition

    made = Consumer(
        {
            "bootstrap.servers": address, "group.id": uuid.uuid4().hex, "log_level": 0,
            "isolation.level": "read_committed", "enable.partition.eof": True,
            "auto.offset.reset": "earliest", "fetch.wait.max.ms": 5,
        }
    )  # fmt: skip
    made.assign([TopicPartition(topic, 0, 0)])
    return made


@pytest.fixture(scope="module")
def postgres():
    from evertable.testing.postgres import Postgres

    with Postgres() as running:
        yield running


@pytest.fixture(scope="module")
def broker():
    from evertable.testing.broker import Broker

    with Broker() as running:
        yield running


def test_a_reader_sees_whole_batches(kind, tmp_path, request):
    (tmp_path / "in").mkdir()
    for n in range(BATCHES):
        path = tmp_path / f"in/{n:03}.json"
        path.write_text(f'{{"k":{n}}}\n' * ROWS)
        os.utime(path, (1_800_000_000 + n, 1_800_000_000 + n))
    (tmp_path / "store.py").write_text(OWN_SINK)
    reader = Reader(kind, Path(tmp_path), request)
    query = "SELECT CAST(k AS STRING) AS value FROM s" if kind == "kafka" else "SELECT k FROM s"
    text = PIPELINE.replace("QUERY", query).replace("SINK", reader.sink())
    (tmp_path / "p.yaml").write_text(text)
    seen, errors = [], []
    done = threading.Event()

    def read():
        while not done.is_set():
            try:
                count = reader.read()
                if count is not None:
                    seen.append(count)
            except Exception as e:
                errors.append(e)

    victim = start(tmp_path)
    loop = threading.Thread(target=read)
    loop.start()
    _, said = victim.communicate(timeout=300)
    done.set()
    loop.join()
    assert victim.returncode == 0, said
    assert reader.read() == BATCHES * ROWS
    assert errors == []
    assert [count for count in seen if count % ROWS] == []
    assert len(set(seen)) > 20, "it looked too seldom to see anything"
