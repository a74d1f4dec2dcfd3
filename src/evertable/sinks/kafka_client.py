"""Options of Spark's Kafka client, which is Java's, as those of librdkafka, which writes
transactions. Texts only."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Names that mean the same to both.
_SAME = """
acks batch.size bootstrap.servers client.dns.lookup client.id compression.type
connections.max.idle.ms delivery.timeout.ms linger.ms max.in.flight.requests.per.connection
metadata.max.age.ms reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
retry.backoff.max.ms retry.backoff.ms sasl.kerberos.service.name sasl.mechanism
security.protocol ssl.endpoint.identification.algorithm ssl.key.password ssl.keystore.location
ssl.keystore.password transaction.timeout.ms
"""
# Names of librdkafka alone, for what Java reads from files of its own kind.
_OURS = """
ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.key.location
ssl.key.pem sasl.username sasl.password
"""
_RENAMED = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_JAAS = "sasl.jaas.config"

NAMES = frozenset(f"kafka.{name}" for name in (*_SAME.split(), *_OURS.split(), *_RENAMED, _JAAS))
MISPLACED = {
    **{
        f"kafka.ssl.truststore.{rest}": "a trust store of Java's cannot be read here: its "
        "certificates as PEM, kafka.ssl.ca.location"
        for rest in ("location", "password", "type")
    },
    "kafka.enable.idempotence": "a transaction always is",
    "kafka.transactional.id": "it is evertable-<pipeline>-<table>-<topic>",
    "kafka.key.serializer": "key and value are written as text or bytes, as they are",
    "kafka.value.serializer": "key and value are written as text or bytes, as they are",
    "subscribe": "a sink has `topic`; `subscribe` is for streams",
}


def settings(options: Mapping[str, str]) -> dict[str, str]:
    """What librdkafka is told.

    >>> settings({"kafka.bootstrap.servers": "a:1", "topic": "t", "kafka.max.request.size": "5",
    ...           "kafka.sasl.jaas.config": 'x required username="me" password="it";'})
    {'bootstrap.servers': 'a:1', 'message.max.bytes': '5', 'sasl.username': 'me', \
'sasl.password': 'it'}
    """
    result: dict[str, str] = {}
    for option, value in options.items():
        name = option.lower().removeprefix("kafka.")
        if name == option.lower():
            continue
        if name == _JAAS:
            found = dict(re.findall(r"\b(username|password)\s*=\s*\"((?:[^\"\\]|\\.)*)\"", value))
            result |= {f"sasl.{key}": re.sub(r"\\(.)", r"\1", v) for key, v in found.items()}
        else:
            result[_RENAMED.get(name, name)] = value
    return result
