"""Kafka, exactly once: a batch is one transaction, and so is the offset that says which batch.

The ledger is the committed offset of a consumer group nobody reads with: batch + 1 on partition 0
of the topic, with the query id and the digest as its metadata. Readers have to use read_committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any

from evertable.errors import Finding, NotReady, Refused
from evertable.location import Location
from evertable.model import kafka_values
from evertable.model import option_values as takes
from evertable.model.capabilities import SinkCapabilities
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import OutputMode, SinkSpec, Table, place_of
from evertable.sinks import kafka_client
from evertable.sinks.seam import Held, fenced, gone, owned
from evertable.spark.arrow import collected
from evertable.spark.secrets import redact

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

CAPABILITIES = SinkCapabilities(
    formats=("kafka",),
    modes=("append", "update", "complete"),
    guarantee="exactly once",
    ledger=True,
    options=frozenset({"topic", "ledger_topic", "partitioner"} | kafka_client.NAMES),
    required=("kafka.bootstrap.servers",),
    values={
        **kafka_values.of_client(kafka_client.NAMES),
        "kafka.linger.ms": takes.number,  # librdkafka takes 0.5
        "kafka.bootstrap.servers": takes.addresses,
        "partitioner": takes.one_of(
            "murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random",
            "fnv1a", "random",
        ),
    },
    misplaced=kafka_client.MISPLACED,
)  # fmt: skip

_SILENT = logging.getLogger("evertable.librdkafka")  # what matters comes as an error
_SILENT.disabled = True
_PATIENCE = 20.0  # seconds for a broker to answer
_PIECE = 5_000  # records between two looks at what went wrong
# A broker that has just come up says one of these until it has read its own logs; librdkafka
# hands them on without calling them retriable.
_COMING_UP = (
    "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
    "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "NOT_CONTROLLER", "BROKER_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT",
    "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR",
)  # fmt: skip


class About:
    """Where a sink's options point, and whom an error is told about."""

    def __init__(
        self, pipeline: str, table: Table, spec: SinkSpec, options: Mapping[str, str]
    ) -> None:
        given = {option.lower(): value for option, value in options.items()}
        self.table = table
        self.settings = kafka_client.settings(options)
        self.servers = given["kafka.bootstrap.servers"]
        self.topic = given.get("topic")
        self.ledger = given.get("ledger_topic") or self.topic or ""
        self.partitioner = given.get("partitioner", "murmur2_random").lower()  # as Java does it
        self.name = f"evertable-{pipeline}-{table.name}-{self.ledger}"
        self.place: Location | None = place_of(spec, "kafka.bootstrap.servers") or table.location
        self.what = f'the sink of table "{table.name}"'
        self.owner = f"{pipeline}/{table.name}"  # of whoever has this group: it is in its name

    def client(self) -> dict[str, Any]:
        return {"logger": _SILENT, "client.id": self.name, **self.settings}

    @contextmanager
    def explained(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as e:
            raise Refused(self.problem(e.args[0])) from e

    def problem(self, error: Any) -> Finding:
        """One finding for an error of the client."""
        from confluent_kafka import KafkaError as E

        code, said = error.code(), redact(str(error.str()))
        fences = (E._FENCED, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH)
        if code in fences or (code == E._FATAL and "fenced" in said):
            return fenced(self.table.name, self.place)
        if code in (E.UNKNOWN_TOPIC_OR_PART, E._UNKNOWN_TOPIC, E._UNKNOWN_PARTITION):
            return gone(self.table.name, self.place, f'topic "{self.topic or "of a row"}"')
        if code in (
            E.TOPIC_AUTHORIZATION_FAILED, E.GROUP_AUTHORIZATION_FAILED, E._AUTHENTICATION,
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.SASL_AUTHENTICATION_FAILED,
        ):  # fmt: skip
            return Finding(
                "SINK_DENIED", f"the broker does not let {self.what} write", self.place,
                detail=said, hint="correct user, password or rights",
            )  # fmt: skip
        if code in (E.MSG_SIZE_TOO_LARGE, E.INVALID_RECORD, E.INVALID_MSG):
            return Finding(
                "VALUE_REFUSED", f'Kafka cannot keep a row of table "{self.table.name}"',
                self.place, detail=said, hint="kafka.max.request.size, and the topic's own limit",
            )  # fmt: skip
        if _passes(error) or error.txn_requires_abort() or code < 0:
            return self.unreachable(said)
        return Finding("SINK_FAILED", f"Kafka refused what {self.what} asked of it", self.place,
                       detail=said)  # fmt: skip

    def unreachable(self, said: str) -> Finding:
        return Finding(
            "SINK_UNREACHABLE",
            f"{self.what} cannot reach its Kafka broker at {self.servers}",
            self.place,
            detail=said,
            hint="start the broker, or correct kafka.bootstrap.servers",
        )

    def no_topic(self) -> Finding:
        return Finding(
            "VALUE_REFUSED",
            f'a row of table "{self.table.name}" names no topic',
            self.place,
            hint="give the sink a `topic` for such rows, or leave them out in the query",
        )


class TransactionSink:
    """A topic, or several, written by one producer."""

    capabilities = CAPABILITIES

    def __init__(self, about: About) -> None:
        self._about = about

    def open(self, table: Table, query_id: str) -> TransactionSession:
        about = self._about
        with about.explained():
            before = _last(about, "read_uncommitted")  # an open transaction is not waited for
            if before is not None and before.query_id != query_id:
                raise Refused(
                    owned(table.name, about.place, before.query_id, about.owner, query_id)
                )
            ledger = Ledger(about)
            try:
                producer, errors = _producer(about)
                # Who wrote before us is fenced off, its open transaction aborted: only now is the
                # ledger final.
                _patiently(lambda: producer.init_transactions(_PATIENCE))
                return TransactionSession(about, producer, errors, ledger, ledger.read())
            except BaseException:
                ledger.close()
                raise


class Ledger:
    """The newest batch, as the offset of a consumer group."""

    def __init__(self, about: About, level: str = "read_committed") -> None:
        consumer = _client(about).Consumer
        with about.explained():
            self._consumer = consumer(
                {**about.client(), "group.id": about.name, "isolation.level": level}
            )
        self._at = (about.ledger, 0)

    def read(self) -> LedgerEntry | None:
        found = _patiently(self._committed)
        if found.offset < 0:
            return None
        query_id, _, digest = (found.metadata or "").partition(" ")
        return LedgerEntry(query_id, found.offset - 1, digest)

    def _committed(self) -> Any:
        from confluent_kafka import KafkaException, TopicPartition

        (found,) = self._consumer.committed([TopicPartition(*self._at)], timeout=_PATIENCE)
        if found.error:
            raise KafkaException(found.error)
        return found

    def add(self, producer: Any, entry: LedgerEntry) -> None:
        """Into the transaction that is open."""
        from confluent_kafka import TopicPartition

        metadata = f"{entry.query_id} {entry.digest}"
        producer.send_offsets_to_transaction(
            [TopicPartition(*self._at, entry.batch + 1, metadata)],
            self._consumer.consumer_group_metadata(),
            _PATIENCE,
        )

    def close(self) -> None:
        self._consumer.close()


class TransactionSession:
    """A producer that nobody else can be."""

    def __init__(
        self,
        about: About,
        producer: Any,
        errors: list[Any],
        ledger: Ledger,
        last: LedgerEntry | None,
    ) -> None:
        self._about = about
        self._producer = producer
        self._errors = errors
        self._ledger = ledger
        self.last = last

    def prepare(self, schema: StructType, mode: OutputMode, keys: Sequence[str]) -> None:
        pass  # the analysis has looked at columns and topic

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        if self.last is not None and entry.batch <= self.last.batch:  # nobody else can be here
            raise Refused(fenced(self._about.table.name, self._about.place))
        batch = collected(rows)
        with self._about.explained():
            self._producer.begin_transaction()
            try:
                self._produce(batch)
                self._ledger.add(self._producer, entry)
                self._flush()
                written()
                self._commit()
            except _NoTopic as e:
                self._abort()
                raise Refused(self._about.no_topic()) from e
            except BaseException:
                self._abort()
                raise
        self.last = entry
        return int(batch.num_rows)

    def _produce(self, batch: pa.Table) -> None:
        produce = self._producer.produce
        if "headers" in [name.lower() for name in batch.schema.names]:
            plain = produce

            def produce(*row: Any) -> None:
                plain(*row[:-1], headers=row[-1])

        for piece in batch.to_batches(max_chunksize=_PIECE):
            for row in _records(piece, self._about.topic):
                while True:
                    try:
                        produce(*row)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
            self._producer.poll(0)
            self._raise_error()

    def _flush(self) -> None:
        """Until every record is acknowledged; those that never will be end the batch."""
        until = time.monotonic() + max(_PATIENCE, 60)
        while self._producer.flush(0.5):
            self._raise_error()
            if time.monotonic() > until:
                raise Refused(self._about.unreachable("records were not acknowledged in time"))
        self._raise_error()

    def _commit(self) -> None:
        _patiently(lambda: self._producer.commit_transaction(_PATIENCE))

    def _raise_error(self) -> None:
        from confluent_kafka import KafkaException

        if self._errors:
            raise KafkaException(self._errors[0])

    def _abort(self) -> None:
        """As far as the broker can be reached: the next claim aborts what is left."""
        from confluent_kafka import KafkaException

        try:
            self._producer.abort_transaction(2.0)
        except KafkaException:
            return
        finally:
            self._errors.clear()

    def maintain(self) -> Iterable[Finding]:
        return ()

    def close(self) -> None:
        """The producer ends with the last who knows it; Spark still knows this session."""
        self._producer = None
        self._ledger.close()


def _passes(error: Any) -> bool:
    """Whether the same request may be made again."""
    return bool(error.retriable()) or error.name() in _COMING_UP


def _patiently(call: Callable[[], Any]) -> Any:
    """What a call gives once the broker is ready for it."""
    from confluent_kafka import KafkaException

    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return call()
        except KafkaException as e:
            if not _passes(e.args[0]) or time.monotonic() > until:
                raise
            time.sleep(0.1)


class _NoTopic(Exception):
    """A row names no topic, and the sink neither."""


def _last(about: About, level: str) -> LedgerEntry | None:
    ledger = Ledger(about, level)
    try:
        return ledger.read()
    finally:
        ledger.close()


def _records(piece: pa.RecordBatch, topic: str | None) -> Iterator[tuple[Any, ...]]:
    """What the producer is told of each row, by position: this is where a batch's time goes."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {}
    for name, column in zip(piece.schema.names, piece.columns, strict=True):
        text = pa.types.is_string(column.type)
        columns[name.lower()] = (column.cast(pa.binary()) if text else column).to_pylist()
    values = columns["value"]
    always, none = repeat(topic), repeat(None)
    topics: Iterable[Any] = always
    if "topic" in columns:
        topics = [t.decode() if t is not None else topic for t in columns["topic"]]
        if None in topics:
            raise _NoTopic
    told: list[Iterable[Any]] = [topics, values]
    if columns.keys() & {"key", "partition", "headers"}:
        told.append(columns.get("key", none))
    if columns.keys() & {"partition", "headers"}:
        told.append(
            [-1 if p is None else p for p in columns["partition"]]
            if "partition" in columns
            else repeat(-1)
        )
    if "headers" in columns:
        told.append([[(one["key"], one["value"]) for one in h or ()] for h in columns["headers"]])
    return zip(*told, strict=False)  # what is always the same never ends


def _producer(about: About) -> tuple[Any, list[Any]]:
    errors: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            errors.append(error)

    producer = _client(about).Producer(
        {
            "linger.ms": "20",
            "transaction.timeout.ms": "120000",
            "topic.metadata.propagation.max.ms": "5000",  # its topics were there at the start
            **about.client(),
            "partitioner": about.partitioner,
            "transactional.id": about.name,
            "on_delivery": delivered,
            "delivery.report.only.error": True,
        }
    )
    return producer, errors


def _client(about: About) -> Any:
    try:
        import confluent_kafka
    except ImportError as e:
        raise NotReady.of(
            "CONNECTOR_MISSING",
            f"{about.what} delivers exactly once, and the package for that is not installed",
            place=about.place,
            hint="pip install 'evertable[kafka]'; or leave out delivery: exactly_once",
        ) from e
    return confluent_kafka


# -- without Spark: for `check`, `sink` and `drop` ---------------------------------------------


def examine(about: About) -> Finding | None:
    """Whether the broker is there, and the topics that are known."""
    topics = _topics(about)
    if isinstance(topics, Finding):
        return topics
    for topic in (about.topic, about.ledger):
        if topic and topic not in topics:
            return Finding(
                "TOPIC_MISSING",
                f'{about.what} writes to topic "{topic}", which does not exist',
                about.place,
                detail=f"asked {about.servers}",
                hint=f'create topic "{topic}", or correct its name',
            )
    return None


def _topics(about: About) -> Finding | set[str]:
    _client(about)
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

    try:
        admin = AdminClient(about.client())
        cluster = admin.list_topics(timeout=_PATIENCE / 2)
        found = set(cluster.topics)
        wanted = {topic for topic in (about.topic, about.ledger) if topic}
        if wanted - found:
            broker = ConfigResource(ConfigResource.Type.BROKER, str(next(iter(cluster.brokers))))
            (config,) = admin.describe_configs([broker]).values()
            makes = config.result(_PATIENCE / 2).get("auto.create.topics.enable")
            return found | wanted if makes and makes.value == "true" else found
        return found
    except KafkaException as e:
        return about.problem(e.args[0])


def held(about: About) -> Held | None:
    """What the group's offset says."""
    with about.explained():
        entry = _last(about, "read_uncommitted")
    if entry is None:
        return None
    target = f"topic {about.ledger} (group {about.name})"
    return Held(target, entry.query_id, entry.batch, entry.digest, about.owner)


def release(about: About) -> None:
    """Forget the group; records stay."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(about.client())
    with about.explained():
        for future in admin.delete_consumer_groups([about.name]).values():
            future.result(_PATIENCE)
