"""Kafka topics as streams, and as static tables."""

from __future__ import annotations

from evertable.model import kafka_values
from evertable.model import option_values as takes
from evertable.model.capabilities import MISPLACED, SourceCapabilities

# Names that Kafka's consumer knows (kafka-clients 3.9); Spark passes on any `kafka.` option.
_CLIENT = """
allow.auto.create.topics auto.include.jmx.reporter bootstrap.servers check.crcs
client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms
enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
isolation.level max.partition.fetch.bytes max.poll.interval.ms max.poll.records
metadata.max.age.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
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
sasl.oauthbearer.token.endpoint.url security.protocol send.buffer.bytes session.timeout.ms
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class
ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
_BOTH = (
    "subscribe subscribePattern assign startingOffsets startingTimestamp "
    "startingOffsetsByTimestamp startingOffsetsByTimestampStrategy failOnDataLoss "
    "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs minPartitions "
    "groupIdPrefix includeHeaders"
)
_STREAMING = "maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay maxRecordsPerPartition"
_BOUNDED = "endingOffsets endingTimestamp endingOffsetsByTimestamp"
_SPARK_DOES = "Spark keeps this itself, in the checkpoint"

TOPICS = ("subscribe", "subscribePattern", "assign")

KAFKA = SourceCapabilities(
    formats=("kafka",),
    options=frozenset(
        {*_BOTH.split(), *_STREAMING.split(), *_BOUNDED.split()}
        | {f"kafka.{name}" for name in _CLIENT.split()}
    ),
    required=("kafka.bootstrap.servers",),
    one_of=TOPICS,
    values={
        **kafka_values.of_client(f"kafka.{name}" for name in _CLIENT.split()),
        "kafka.bootstrap.servers": takes.addresses,
        "subscribepattern": takes.pattern,
        "assign": takes.partitions_of_topics,
        "startingoffsets": takes.offsets,
        "endingoffsets": takes.offsets,
        "startingtimestamp": takes.whole_number,
        "endingtimestamp": takes.whole_number,
        "startingoffsetsbytimestamp": takes.numbers_of_partitions,
        "endingoffsetsbytimestamp": takes.numbers_of_partitions,
        "startingoffsetsbytimestampstrategy": takes.one_of("error", "latest"),
        "failondataloss": takes.boolean,
        "includeheaders": takes.boolean,
        "maxoffsetspertrigger": takes.whole_number,
        "minoffsetspertrigger": takes.whole_number,
        "minpartitions": takes.whole_number,
        "maxtriggerdelay": takes.length_of_time,
        "maxrecordsperpartition": takes.whole_number,
        "kafkaconsumer.polltimeoutms": takes.whole_number,
        "fetchoffset.numretries": takes.whole_number,
        "fetchoffset.retryintervalms": takes.whole_number,
    },
    misplaced={
        **MISPLACED,
        "kafka.auto.offset.reset": "use startingOffsets: it counts at the first start only",
        "kafka.enable.auto.commit": _SPARK_DOES,
        "kafka.auto.commit.interval.ms": _SPARK_DOES,
        "kafka.key.deserializer": "key and value come as bytes; `decode:` makes columns of them",
        "kafka.value.deserializer": "key and value come as bytes; `decode:` makes columns of them",
        "kafka.interceptor.classes": "an interceptor may change rows; Spark refuses them",
        "topic": "a stream has `subscribe`; `topic` is for sinks",
    },
    streaming_only=frozenset(_STREAMING.split()),
    bounded_only=frozenset(_BOUNDED.split()),
    bounded=True,
    cap=("maxOffsetsPerTrigger", "1000000"),
    continuous=True,
    real_time=True,
    connector="kafka",
)
