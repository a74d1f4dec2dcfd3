"""One Spark session for the whole run, and a small kit to feed pipelines and read tables."""

from __future__ import annotations

import os
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evertable.model.pipeline import Pipeline as Model
from evertable.plan.answers import parsed
from evertable.project import open_pipeline
from evertable.run.faults import FaultHook, nothing_strikes
from evertable.run.runner import Runner
from evertable.sinks.embedded.reader import query
from evertable.spark import connectors
from evertable.spark import session as spark_session
from evertable.testing.broker import Broker
from evertable.testing.postgres import Postgres

CONFS = {"master": "local[2]", "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    logs = str(tmp_path_factory.mktemp("spark") / "logs")
    root = os.path.dirname(__file__)
    jars = [j for name in ("kafka", "avro") for j in connectors.get(connectors.lock()[name])]
    session = spark_session.start(CONFS, name="tests", root=root, logs=logs, quick=True, jars=jars)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker, one for all tests; each test makes topics of its own."""
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real server, one for all tests; each test makes tables of its own."""
    with Postgres() as running:
        yield running


class Kit:
    """A pipeline in a folder of its own, fed file by file."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder = folder
        self.spark = spark
        self.file = folder / "p.yaml"
        self.events: list[Any] = []
        self.shown: list[tuple[str, int, list[dict[str, Any]]]] = []
        self._files = 0

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def feed(self, folder: str, *lines: str) -> None:
        """One more file of lines, whole as soon as it is there."""
        self._files += 1
        draft = self.write(f"{folder}/.{self._files:04}.txt", "\n".join(lines) + "\n")
        moment = 1_800_000_000 + self._files  # Spark reads files in the order of their times
        os.utime(draft, (moment, moment))
        draft.rename(draft.with_name(f"{self._files:04}.txt"))

    def yaml(self, text: str) -> Model:
        """The pipeline in a YAML text, with Spark confs for tests."""
        self.write("p.yaml", text)
        return open_pipeline(str(self.file))

    def run(
        self,
        pipeline: Model,
        only: tuple[str, ...] = (),
        *,
        at: FaultHook = nothing_strikes,
        answer: str = "",
    ) -> Runner:
        """Run to the end; a table that fails raises. `answer` as in --answer."""
        runner = Runner(
            pipeline,
            only=only,
            spark=self.spark,
            at=at,
            answers=dict([parsed(answer)]) if answer else None,
            emit=self.events.append,
            show=lambda table, batch, rows: self.shown.append((table, batch, rows.to_pylist())),
        )
        runner.start()
        runner.wait()
        for run in runner.failed():
            assert run.finding is not None
            raise Failed(run.finding)
        return runner

    def rows(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """An embedded table's rows, sorted."""
        from evertable.model.storage import Storage

        file = Storage.of(open_pipeline(str(self.file))).table_file(table)
        found = query(f"SELECT {columns} FROM {table}", {table: file}).rows
        return sorted(found, key=repr)


class Failed(Exception):
    def __init__(self, finding: Any) -> None:
        super().__init__(f"{finding} | {finding.detail} | {finding.spark}")
        self.finding = finding


@pytest.fixture
def kit(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Kit:
    monkeypatch.chdir(tmp_path)
    return Kit(tmp_path, spark)


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """What a condition gives once it is true; there is no other way to follow a JVM's threads."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come to pass")


class Kafka:
    """Topics of one test, written and read by a client that is not Spark's."""

    def __init__(self, broker: Broker) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient

        self.broker = broker
        self.address = broker.address
        self._prefix = f"t{uuid.uuid4().hex[:8]}"
        self._conf = {"bootstrap.servers": broker.address, "log_level": 0}
        self.admin = AdminClient(self._conf)
        self._producer = Producer(self._conf)

    def topic(self, name: str, partitions: int = 1) -> str:
        """A new topic with a name of this test's own."""
        full = f"{self._prefix}_{name}"
        # for ever: tests use times of the past, which a broker would soon clean away
        self.broker.create_topic(full, partitions, retention_ms="-1")
        return full

    def produce(self, topic: str, *values: str | bytes | None, **keys: Any) -> None:
        """One record a value; `key=`, `partition=`, `headers=`, `timestamp=` for all of them."""
        for value in values:
            self._producer.produce(topic, value, **keys)
        self._producer.flush(20)

    def consume(self, topic: str, number: int = 1_000, until: bytes | None = None) -> list[Any]:
        """The first records of a topic, in the order they come: so many, or until one comes."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {**self._conf, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        )
        try:
            consumer.subscribe([topic])
            found: list[Any] = []
            deadline = time.monotonic() + 30
            while len(found) < number and time.monotonic() < deadline:
                found += [m for m in consumer.consume(number - len(found), 0.2) if not m.error()]
                if until is not None and until in {m.value() for m in found}:
                    break
            return found
        finally:
            consumer.close()

    def committed(self, topic: str, level: str = "read_committed") -> list[Any]:
        """Every record that a reader with read_committed sees now."""
        from confluent_kafka import Consumer, TopicPartition

        conf = {
            **self._conf,
            "group.id": uuid.uuid4().hex,
            "isolation.level": level,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(conf)
        partitions = list(consumer.list_topics(topic, 20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found: list[Any] = []
        ended: set[int] = set()
        until = time.monotonic() + 60
        while len(ended) < len(partitions) and time.monotonic() < until:
            for message in consumer.consume(10_000, 0.1):
                if message.error():
                    ended.add(message.partition())
                else:
                    found.append(message)
        consumer.close()
        assert len(ended) == len(partitions), "the end was never seen"
        return found

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(20)
        until = time.monotonic() + 20
        while topic in self.admin.list_topics(timeout=5).topics and time.monotonic() < until:
            pass


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker)
