"""Streams read as bounded pieces: for `preview`, and for the batch answer to compare with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from evertable.errors import Finding, Refused
from evertable.model.pipeline import Pipeline, Stream
from evertable.sources.registry import SOURCES
from evertable.spark.frames import Bounded, Frames
from evertable.spark.reading import load
from evertable.spark.schemas import SchemaStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_FILES = 100
_MOST_BYTES = 64_000_000
_ROWS_MADE_UP = 1_000


def frames(
    session: SparkSession, pipeline: Pipeline, schemas: SchemaStore, *, whole: bool = False
) -> Frames:
    """Frames whose streams are batch DataFrames: all of their input, or a piece of it."""

    def bounded(session: SparkSession, stream: Stream, options: Mapping[str, str]) -> DataFrame:
        source = SOURCES[stream.format]
        if not source.bounded:
            return _made_up(session, stream, options)
        streaming = {o.lower() for o in source.streaming_only}
        batch = {k: v for k, v in options.items() if k.lower() not in streaming}
        if "path" not in source.paths:
            # What a stream reads only from now on would have no rows yet.
            batch = {k: v for k, v in batch.items() if v.lower() != "latest"}
            reader = session.read.schema(stream.schema) if stream.schema else session.read
            return load(reader, session, stream, batch, pipeline.root)
        reader = session.read
        schema = schemas.of(session, stream, source, options)
        if schema is not None:
            reader = reader.schema(schema)
        path = batch.pop("path")
        paths = [path] if whole else _piece(path)
        if paths != [path]:
            batch.setdefault("basePath", path)
        return load(reader, session, stream, batch, pipeline.root, *paths)

    read: Bounded = bounded
    return Frames(session, pipeline, SOURCES, schemas, bounded=read)


def _piece(path: str) -> list[str]:
    """The first files of a folder, up to a size that can be read while somebody waits."""
    if not os.path.isdir(path):
        return [path]
    chosen: list[str] = []
    size = 0
    for folder, subfolders, names in os.walk(path):
        subfolders.sort()
        for name in sorted(names):
            if name.startswith((".", "_")):
                continue
            file = os.path.join(folder, name)
            size += os.path.getsize(file)
            if chosen and (size > _MOST_BYTES or len(chosen) >= _MOST_FILES):
                return chosen
            chosen.append(file)
    return chosen or [path]


def _made_up(session: SparkSession, stream: Stream, options: Mapping[str, str]) -> DataFrame:
    """Rows as the rate sources make them."""
    if stream.format == "socket":
        raise Refused(
            Finding(
                "PREVIEW_CONSUMES",
                f'stream "{stream.name}" is a socket: what is read from it is gone',
                stream.location,
                hint="preview a view that reads files, or run the table with sink: console",
            )
        )
    by_lower = {k.lower(): v for k, v in options.items()}
    a_second = int(by_lower.get("rowspersecond", by_lower.get("rowsperbatch", "1")))
    rows = session.range(0, _ROWS_MADE_UP, 1, 1)
    step = 1_000_000 // max(1, a_second)
    return rows.selectExpr(
        f"timestamp_micros(unix_micros(current_timestamp()) - ({_ROWS_MADE_UP} - id) * {step}) "
        "AS timestamp",
        "id AS value",
    )
