"""What a source says of itself before a table starts: does it exist, is it still the same?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evertable.errors import Finding
from evertable.location import Location
from evertable.model.pipeline import Stream, place_of
from evertable.sources.kafka import TOPICS
from evertable.spark.kafka_admin import (
    KafkaAdmin,
    Misconfigured,
    Topic,
    Unreachable,
    admin,
    partitions_named,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Examined:
    """A stream's source as it is now."""

    identity: Mapping[str, str] = field(default_factory=dict)  # part of it -> its id
    partitions: int | None = None  # how many tasks read it at once; None: Spark decides
    findings: tuple[Finding, ...] = ()


def examine(session: SparkSession, stream: Stream, options: Mapping[str, str]) -> Examined:
    """Ask a stream's source; `options` are what Spark's reader gets."""
    by_lower = {k.lower(): v for k, v in options.items()}
    match stream.format:
        case "kafka":
            return _kafka(session, stream, options, by_lower)
        case "socket":
            return Examined(partitions=1)
        case "rate":
            given = by_lower.get("numpartitions")
            return Examined(partitions=int(given) if given else None)
        case _:
            return Examined()


def recreated(stream: Stream, before: Mapping[str, str], now: Mapping[str, str]) -> Finding | None:
    """Why a stream's past is not the one that its checkpoint counts in; None where it is."""
    other = [name for name, id in before.items() if name in now and now[name] != id]
    if not other:
        return None
    return Finding(
        "TOPIC_RECREATED",
        f'stream "{stream.name}" reads topic "{other[0]}", which was deleted and made again',
        stream.location,
        detail="the checkpoint counts rows of the topic that is gone: its numbers mean other rows "
        "of the new one, and rows would be left out in silence",
        hint="`evertable drop` the table and start over, or read the new topic as a new stream",
    )


def _kafka(
    session: SparkSession,
    stream: Stream,
    options: Mapping[str, str],
    by_lower: Mapping[str, str],
) -> Examined:
    try:
        with admin(session, options) as kafka:
            return _topics(kafka, stream, by_lower)
    except Misconfigured as e:
        finding = Finding(
            "OPTION_INVALID",
            f'Kafka\'s client does not take the options of stream "{stream.name}"',
            stream.location,
            detail=str(e),
            hint="correct the options whose names begin with kafka.",
        )
        return Examined(findings=(finding,))
    except Unreachable as e:
        servers = by_lower.get("kafka.bootstrap.servers", "")
        return Examined(
            findings=(
                Finding(
                    "BROKER_UNREACHABLE",
                    f'stream "{stream.name}" cannot reach its Kafka broker at {servers}',
                    place_of(stream, "kafka.bootstrap.servers"),
                    detail=str(e),
                    hint="start the broker, or correct kafka.bootstrap.servers",
                ),
            )
        )


def _topics(kafka: KafkaAdmin, stream: Stream, by_lower: Mapping[str, str]) -> Examined:
    which = next(option for option in TOPICS if option.lower() in by_lower)
    value = by_lower[which.lower()]
    place = place_of(stream, which)
    findings: list[Finding] = []
    read: int | None = None
    if which == "subscribePattern":
        topics = kafka.matching(value)
        if not topics:
            findings.append(
                Finding(
                    "TOPIC_MISSING",
                    f'stream "{stream.name}" reads topics like "{value}", and there is none',
                    place,
                    detail="topics that are made later are read from their first row",
                    severity="warning",
                )
            )
    else:
        assigned = partitions_named(value) if which == "assign" else {}
        names = list(assigned) or [name.strip() for name in value.split(",") if name.strip()]
        topics = kafka.topics(names)
        for name in names:
            if name not in topics:
                findings.append(_missing(stream, name, place, by_lower))
        for name, numbers in assigned.items():
            there = topics[name].partitions if name in topics else 0
            if name in topics and max(numbers, default=0) >= there:
                findings.append(
                    Finding(
                        "OPTION_INVALID",
                        f'stream "{stream.name}" is assigned partition {max(numbers)} of topic '
                        f'"{name}", which has {there}',
                        place,
                    )
                )
        if assigned:
            read = sum(len(numbers) for numbers in assigned.values())
    if not findings:
        findings += _starts(kafka, stream, topics, by_lower, all_of_them=which != "assign")
    return Examined(
        {name: topic.id for name, topic in topics.items()},
        read if read is not None else sum(t.partitions for t in topics.values()),
        tuple(findings),
    )


def _missing(
    stream: Stream, name: str, place: Location | None, by_lower: Mapping[str, str]
) -> Finding:
    return Finding(
        "TOPIC_MISSING",
        f'stream "{stream.name}" reads topic "{name}", which does not exist',
        place,
        detail=f"asked {by_lower.get('kafka.bootstrap.servers', '')}",
        hint=f'create topic "{name}", or correct its name',
    )


def _starts(
    kafka: KafkaAdmin,
    stream: Stream,
    topics: Mapping[str, Topic],
    by_lower: Mapping[str, str],
    *,
    all_of_them: bool,
) -> list[Finding]:
    """Where reading begins, if that is said by partition or by time."""
    for option in ("startingOffsets", "startingOffsetsByTimestamp"):
        text = by_lower.get(option.lower(), "")
        if not text.startswith("{"):
            continue
        named = partitions_named(text)
        missing = [
            f"{topic.name}-{p}"
            for topic in topics.values()
            for p in range(topic.partitions)
            if p not in named.get(topic.name, set())
        ]
        unknown = [name for name in named if name not in topics]
        if (missing and all_of_them) or unknown:
            why = f"no offset for {', '.join(missing)}" if missing else f"no topic {unknown[0]}"
            return [
                Finding(
                    "OPTION_INVALID",
                    f'{option} of stream "{stream.name}" does not fit its topics: {why}',
                    place_of(stream, option),
                    hint="name every partition of every topic; -2 is its first row, -1 its end",
                )
            ]
    timestamp = by_lower.get("startingtimestamp")
    lenient = by_lower.get("startingoffsetsbytimestampstrategy", "error").lower() == "latest"
    if timestamp and topics and not lenient:
        empty = kafka.starts_from(topics, int(timestamp))
        if empty:
            return [
                Finding(
                    "OPTION_INVALID",
                    f'startingTimestamp of stream "{stream.name}" is after the last row of '
                    f"{', '.join(empty)}",
                    place_of(stream, "startingTimestamp"),
                    hint="startingOffsetsByTimestampStrategy: latest starts those at their end",
                )
            ]
    return []
