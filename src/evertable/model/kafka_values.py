"""Which values the options of Kafka's clients take, as far as their names or their kinds tell."""

from __future__ import annotations

from collections.abc import Iterable

from evertable.model.option_values import Check, boolean, exactly, number, one_of, whole_number

_WHOLE = """
batch.size buffer.memory max.in.flight.requests.per.connection max.poll.records max.request.size
metrics.num.samples retries sasl.kerberos.min.time.before.relogin
"""
_NO_LIMIT = {"connections.max.idle.ms", "receive.buffer.bytes", "send.buffer.bytes"}  # as -1
_BOOLEAN = """
allow.auto.create.topics auto.include.jmx.reporter check.crcs enable.idempotence
enable.metrics.push exclude.internal.topics partitioner.adaptive.partitioning.enable
partitioner.ignore.keys sasl.oauthbearer.header.urlencode
"""
# Where the client tells cases apart, so do we.
_WORDS = {
    "acks": exactly("all", "-1", "0", "1"),
    "client.dns.lookup": exactly("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "compression.type": exactly("none", "gzip", "snappy", "lz4", "zstd"),
    "group.protocol": one_of("classic", "consumer"),
    "isolation.level": exactly("read_uncommitted", "read_committed"),
    "metadata.recovery.strategy": one_of("none", "rebootstrap"),
    "sasl.mechanism": exactly(
        "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"
    ),
    "security.protocol": one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
}


def of_client(names: Iterable[str]) -> dict[str, Check]:
    """The checks of some options, by their names in lower case with `kafka.` before them."""
    found = {name: _check(name.removeprefix("kafka.")) for name in names}
    return {name: check for name, check in found.items() if check is not None}


def _check(name: str) -> Check | None:
    if name in _WORDS:
        return _WORDS[name]
    if name in _BOOLEAN.split():
        return boolean
    if name in _NO_LIMIT:
        return _whole_or_no_limit
    if name in _WHOLE.split() or name.endswith((".ms", ".bytes", ".seconds")):
        return whole_number
    return number if name.endswith((".jitter", ".factor")) else None


def _whole_or_no_limit(text: str) -> str | None:
    return None if text.strip() == "-1" else whole_number(text)
