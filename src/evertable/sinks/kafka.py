"""Spark's own Kafka sink, at least once: columns value, key, headers, topic, partition.

With `delivery: exactly_once` it is the one of kafka_transactions, which takes the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evertable.errors import Finding
from evertable.model import kafka_values
from evertable.model import option_values as takes
from evertable.model.capabilities import ASYNC, SinkCapabilities
from evertable.model.pipeline import SinkSpec, Table, place_of
from evertable.sinks import kafka_transactions
from evertable.spark.kafka_admin import Misconfigured, Unreachable, admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# Names that Kafka's producer knows (kafka-clients 3.9); Spark passes on any `kafka.` option.
_CLIENT = """
acks auto.include.jmx.reporter batch.size bootstrap.servers buffer.memory client.dns.lookup
client.id compression.gzip.level compression.lz4.level compression.type compression.zstd.level
connections.max.idle.ms delivery.timeout.ms enable.idempotence enable.metrics.push linger.ms
max.block.ms max.in.flight.requests.per.connection max.request.size metadata.max.age.ms
metadata.max.idle.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.mechanism sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.protocol send.buffer.bytes
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class
ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""

CAPABILITIES = SinkCapabilities(
    formats=("kafka",),
    modes=("append", "update", "complete"),
    guarantee="at least once",
    options=frozenset(
        {"topic", "includeHeaders", *ASYNC} | {f"kafka.{n}" for n in _CLIENT.split()}
    ),
    required=("kafka.bootstrap.servers",),
    values={
        **kafka_values.of_client(f"kafka.{name}" for name in _CLIENT.split()),
        "kafka.bootstrap.servers": takes.addresses,
        "includeheaders": takes.boolean,
        **{option.lower(): check for option, check in ASYNC.items()},
    },
    misplaced={
        "kafka.key.serializer": "key and value are written as text or bytes, as they are",
        "kafka.value.serializer": "key and value are written as text or bytes, as they are",
        "kafka.interceptor.classes": "an interceptor may change rows; Spark refuses them",
        "kafka.transactional.id": "Spark's Kafka sink writes no transactions; "
        "delivery: exactly_once does",
        "subscribe": "a sink has `topic`; `subscribe` is for streams",
    },
    continuous=True,
    real_time=True,
    connector="kafka",
    exactly_once=kafka_transactions.CAPABILITIES,
)

_TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}


def columns_problem(schema: StructType, options: Mapping[str, str]) -> str | None:
    """Why Spark's sink would refuse these columns, which it says only after the start.

    Types are compared by their short names.
    """
    found = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    if "value" not in found:
        return 'a Kafka sink writes the column "value", which it does not have'
    if "topic" not in found and "topic" not in {option.lower() for option in options}:
        return 'it names no topic: the sink has no option "topic", and the rows no such column'
    for name, kind in found.items():
        if name not in _TYPES:
            return f'a Kafka sink has no place for column "{name}"; it takes {", ".join(_TYPES)}'
        if kind not in _TYPES[name]:
            return f'column "{name}" is {kind}, and a Kafka sink takes {" or ".join(_TYPES[name])}'
    return None


def examine(
    session: SparkSession, table: Table, spec: SinkSpec, options: Mapping[str, str]
) -> Finding | None:
    """Whether the broker and the topic of a sink are there."""
    by_lower = {option.lower(): value for option, value in options.items()}
    servers, topic = by_lower["kafka.bootstrap.servers"], by_lower.get("topic")
    what = f'the sink of table "{table.name}"'
    try:
        with admin(session, options) as kafka:
            if topic and not kafka.topics([topic]) and not kafka.makes_topics():
                return Finding(
                    "TOPIC_MISSING",
                    f'{what} writes to topic "{topic}", which does not exist',
                    place_of(spec, "topic") or table.location,
                    detail=f"asked {servers}, which makes no topics by itself",
                    hint=f'create topic "{topic}", or correct its name',
                )
    except Misconfigured as e:
        return Finding(
            "OPTION_INVALID",
            f"Kafka's client does not take the options of {what}",
            spec.location or table.location,
            detail=str(e),
            hint="correct the options whose names begin with kafka.",
        )
    except Unreachable as e:
        return Finding(
            "BROKER_UNREACHABLE",
            f"{what} cannot reach its Kafka broker at {servers}",
            place_of(spec, "kafka.bootstrap.servers") or table.location,
            detail=str(e),
            hint="start the broker, or correct kafka.bootstrap.servers",
        )
    return None
