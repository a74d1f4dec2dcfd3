"""A Spark session for one pipeline, with the connectors that its sources and sinks need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evertable.location import Location
from evertable.model.pipeline import Pipeline
from evertable.sinks.registry import capabilities
from evertable.sources.registry import SOURCES
from evertable.spark import connectors
from evertable.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]


def needs(pipeline: Pipeline) -> Iterator[tuple[str, str, Location | None]]:
    """(connector, who needs it, where that stands), each connector once."""
    found: dict[str, tuple[str, Location | None]] = {}
    for stream in pipeline.streams:
        if name := SOURCES[stream.format].connector:
            found.setdefault(name, (f'stream "{stream.name}"', stream.location))
        if stream.decode and stream.decode.format == "avro":
            found.setdefault("avro", (f'decode of stream "{stream.name}"', stream.location))
    for static in pipeline.statics:
        if name := SOURCES[static.format].connector:
            found.setdefault(name, (f'static "{static.name}"', static.location))
    for table in pipeline.tables:
        for spec in table.sinks:
            if name := capabilities(spec).connector:
                place = spec.location or table.location
                found.setdefault(name, (f'the sink of table "{table.name}"', place))
    for name, (what, place) in found.items():
        yield name, what, place


def jars(pipeline: Pipeline, say: Say) -> list[Path]:
    """The jars of every connector that a pipeline needs, fetched where they are missing."""
    return [
        jar
        for name, what, place in needs(pipeline)
        for jar in connectors.get(connectors.lock()[name], say, what=what, place=place)
    ]


def bare_files(confs: Mapping[str, str], say: Say) -> list[Path]:
    """The jar of the file system that forks no process, where the confs ask for it."""
    if confs.get("spark.hadoop.fs.file.impl") != spark_session.BARE_FILES:
        return []
    return connectors.get(connectors.lock()["files"], say, what="spark.hadoop.fs.file.impl")


def open_spark(
    pipeline: Pipeline,
    *,
    logs: str,
    quick: bool = False,
    jvm_flags: str | None = None,
    say: Say = lambda text: print(text, file=sys.stderr),
) -> SparkSession:
    """The session; the one that runs already, if any."""
    return spark_session.start(
        pipeline.spark,
        name=pipeline.name,
        root=pipeline.root,
        logs=logs,
        quick=quick,
        jvm_flags=jvm_flags,
        jars=jars(pipeline, say),
        class_path=bare_files(pipeline.spark, say),
    )
