"""What a Kafka cluster says of its topics, through the Java client that Spark reads with.

The same client takes the same `kafka.` options, so what is asked here is allowed, encrypted and
authenticated exactly as reading will be.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evertable.spark.secrets import redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 10


class Unreachable(Exception):
    """No broker of the cluster answered."""


class Misconfigured(Exception):
    """The client does not take its options."""


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster knows it now."""

    name: str
    id: str  # another one after the topic was deleted and made again
    partitions: int


class KafkaAdmin:
    """Questions to one cluster."""

    def __init__(self, jvm: Any, client: Any) -> None:
        self._jvm = jvm
        self._client = client

    def topics(self, names: list[str]) -> dict[str, Topic]:
        """Those of the named topics that exist."""
        futures = self._client.describeTopics(self._list(names)).topicNameValues()
        found: dict[str, Topic] = {}
        for name in names:
            try:
                topic = self._result(futures.get(name))
            except _Missing:
                continue
            found[name] = Topic(name, topic.topicId().toString(), topic.partitions().size())
        return found

    def matching(self, pattern: str) -> dict[str, Topic]:
        """The topics whose whole name a pattern fits, as a consumer would find them."""
        everything = [str(name) for name in self._result(self._client.listTopics().names())]
        java = self._jvm.java.util.regex.Pattern.compile(pattern)
        return self.topics([name for name in everything if java.matcher(name).matches()])

    def starts_from(self, topics: Mapping[str, Topic], timestamp: int) -> list[str]:
        """Partitions that have no record at or after a time."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(timestamp)
        wanted = self._jvm.java.util.HashMap()
        for topic in topics.values():
            for partition in range(topic.partitions):
                key = self._jvm.org.apache.kafka.common.TopicPartition(topic.name, partition)
                wanted.put(key, spec)
        found = self._result(self._client.listOffsets(wanted).all())
        return sorted(
            f"{entry.getKey().topic()}-{entry.getKey().partition()}"
            for entry in found.entrySet()
            if entry.getValue().offset() < 0
        )

    def ends(self, names: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
        """(topic, partition) -> the first offset that is there, and the one after the last."""
        kinds = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        first = self._offsets(names, kinds.earliest())
        last = self._offsets(names, kinds.latest())
        return {part: (first[part], last[part]) for part in first}

    def _offsets(self, names: list[str], spec: Any) -> dict[tuple[str, int], int]:
        wanted = self._jvm.java.util.HashMap()
        for topic in self.topics(names).values():
            for partition in range(topic.partitions):
                key = self._jvm.org.apache.kafka.common.TopicPartition(topic.name, partition)
                wanted.put(key, spec)
        found = self._result(self._client.listOffsets(wanted).all())
        return {
            (entry.getKey().topic(), entry.getKey().partition()): entry.getValue().offset()
            for entry in found.entrySet()
        }

    def makes_topics(self) -> bool:
        """Whether a broker makes a topic when somebody writes to it."""
        kinds = self._jvm.org.apache.kafka.common.config.ConfigResource.Type
        resource = self._jvm.org.apache.kafka.common.config.ConfigResource
        try:
            nodes = self._result(self._client.describeCluster().nodes())
            broker = resource(kinds.BROKER, str(nodes.iterator().next().id()))
            configs = self._result(self._client.describeConfigs(self._list([broker])).all())
            entry = configs.get(broker).get("auto.create.topics.enable")
        except Exception:
            return True  # nobody may ask here: then nobody can be refused for it
        return entry is None or entry.value() == "true"

    def _list(self, values: list[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def _result(self, future: Any) -> Any:
        try:
            return future.get(_SECONDS, self._jvm.java.util.concurrent.TimeUnit.SECONDS)
        except Exception as e:
            said = _java_text(e)
            if "UnknownTopicOrPartition" in said or "InvalidTopicException" in said:
                raise _Missing from e
            if "TimeoutException" in said or "DisconnectException" in said:
                raise Unreachable(_reason(said)) from e
            raise


class _Missing(Exception):
    pass


@contextmanager
def admin(session: SparkSession, options: Mapping[str, str]) -> Iterator[KafkaAdmin]:
    """A client with the `kafka.` options of a stream or a sink.

    Misconfigured where it does not take them, Unreachable where no broker answers.
    """
    jvm: Any = session._jvm
    settings = {
        key[len("kafka.") :]: value
        for key, value in options.items()
        if key.lower().startswith("kafka.")
    }
    _somebody_listens(settings.get("bootstrap.servers", ""))
    properties = jvm.java.util.Properties()
    for key, value in {"request.timeout.ms": "5000", "default.api.timeout.ms": "8000"}.items():
        properties.setProperty(key, value)
    for key, value in settings.items():
        if not key.startswith(("group.", "max.poll", "auto.")):  # a consumer's own
            properties.setProperty(key, value)
    try:
        client = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    except Exception as e:
        raise Misconfigured(_innermost(e)) from e
    try:
        yield KafkaAdmin(jvm, client)
    finally:
        client.close(jvm.java.time.Duration.ofSeconds(1))


def partitions_named(text: str) -> dict[str, set[int]]:
    """The partitions in `{"topic": [0, 1]}` or `{"topic": {"0": 23}}`."""
    return {topic: {int(p) for p in partitions} for topic, partitions in json.loads(text).items()}


def _somebody_listens(servers: str) -> None:
    """Kafka's client tries for a minute and then names no address."""
    reasons: list[str] = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=3):
                return
        except (OSError, ValueError) as e:
            reasons.append(f"{server.strip()}: {getattr(e, 'strerror', None) or e}")
    raise Unreachable("; ".join(reasons))


def _java_text(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.toString()) + str(java.getCause()) if java is not None else str(error)


def _innermost(error: Exception) -> str:
    """What the first of a chain of causes says: the others say that they failed, too."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return redact(str(cause.getMessage() if cause is not None else error))


def _reason(said: str) -> str:
    first = re.sub(r"^(?:[\w.$]+(?:Exception|Error): )+", "", said.partition("\n")[0])
    return redact(first)
