"""Small pieces of a stream's input, spread over all of it, and what they say of its rate."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evertable.model.pipeline import Pipeline, Stream
from evertable.sources.registry import SOURCES
from evertable.spark.frames import Frames
from evertable.spark.kafka_admin import admin
from evertable.spark.reading import load
from evertable.spark.schemas import SchemaStore

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PIECES = 10
_HEAD = 1 << 18  # bytes of a text file that tell how long its lines are
_LOW = 0.02  # of the event times of a piece: where it begins, but for rows that came late
_SORTED = 0.7  # of neighbours in order, from which on a piece is one of time
_TEXT = {"json", "csv", "text"}


@dataclass(frozen=True)
class Piece:
    """Rows that stand together in the source, and how many rows come before them."""

    rows: pa.Table
    begins: float


@dataclass(frozen=True)
class Sample:
    """What was read of a stream: rows as its source gives them."""

    pieces: tuple[Piece, ...]
    total: float  # rows of the source, as near as can be told without reading them
    batch: float  # rows that one batch takes at the most
    rate: float = 0.0  # rows a second of event time; 0 where no time tells

    @property
    def rows(self) -> pa.Table:
        import pyarrow as pa

        return pa.concat_tables([piece.rows for piece in self.pieces])


class CannotSample(Exception):
    """Why a stream cannot be sampled."""


def sample(
    session: SparkSession,
    pipeline: Pipeline,
    stream: Stream,
    schemas: SchemaStore,
    most: int,
    topics: Sequence[str] = (),
) -> Sample:
    """At most so many rows of a stream; CannotSample where its source has no bounded piece."""
    frames = Frames(session, pipeline, SOURCES, schemas, named=False)
    options = frames.options(stream, SOURCES[stream.format], f'stream "{stream.name}"')
    if stream.format == "kafka":
        found = _of_kafka(session, pipeline, stream, options, topics, most)
    elif "path" in SOURCES[stream.format].paths:
        found = _of_files(session, pipeline, stream, options, schemas, most)
    else:
        raise CannotSample(f"stream {stream.name} ({stream.format}) has no bounded piece to read")
    if not found.rows.num_rows:
        raise CannotSample(f"stream {stream.name} has no rows yet")
    rate = _rate(found, _times(session, pipeline, stream, schemas, found))
    return Sample(found.pieces, found.total, found.batch, rate)


def _of_files(
    session: SparkSession,
    pipeline: Pipeline,
    stream: Stream,
    options: Mapping[str, str],
    schemas: SchemaStore,
    most: int,
) -> Sample:
    source = SOURCES[stream.format]
    streaming = {o.lower() for o in source.streaming_only}
    batch = {k: v for k, v in options.items() if k.lower() not in streaming}
    path = batch.pop("path")
    files = _files(path)
    if not files:
        raise CannotSample(f"stream {stream.name} has no files yet")
    if os.path.isdir(path):
        batch.setdefault("basePath", path)
    schema = schemas.of(session, stream, source, options)
    chosen = sorted({round(i * (len(files) - 1) / (_PIECES - 1)) for i in range(_PIECES)})
    each = max(1, most // len(chosen))
    sizes = [os.path.getsize(file) for file in files]
    pieces, lengths = [], []
    for number in chosen:
        reader = session.read if schema is None else session.read.schema(schema)
        frame = load(reader, session, stream, batch, pipeline.root, files[number])
        rows = frame.limit(each).toArrow()
        pieces.append((number, rows))
        lengths.append(sizes[number] / max(1, _rows_in(files[number], stream, frame)))
    row_bytes = sum(lengths) / len(lengths)
    before = [sum(sizes[:number]) / row_bytes for number, _ in pieces]
    total = sum(sizes) / row_bytes
    caps = {option.lower(): value for option, value in options.items()}
    per_batch = total
    if "maxfilespertrigger" in caps:
        per_batch = total / len(files) * int(caps["maxfilespertrigger"])
    elif "maxbytespertrigger" in caps:
        per_batch = int(caps["maxbytespertrigger"].lower().rstrip("b")) / row_bytes
    found = [Piece(rows, begins) for (_, rows), begins in zip(pieces, before, strict=True)]
    return Sample(tuple(found), total, min(total, per_batch))


def _files(path: str) -> list[str]:
    """The files of a folder in the order that Spark reads them: by their times."""
    if os.path.isfile(path):
        return [path]
    found = [
        str(file)
        for file in Path(path).rglob("*")
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.parts[-2:])
    ]
    return sorted(found, key=lambda file: (os.path.getmtime(file), file))


def _rows_in(file: str, stream: Stream, frame: DataFrame) -> float:
    """How many rows a file has, as cheaply as its format lets one know."""
    if stream.format == "parquet":
        import pyarrow.parquet as pq

        return float(pq.read_metadata(file).num_rows)
    if stream.format == "orc":
        from pyarrow import orc

        return float(orc.ORCFile(file).nrows)
    if stream.format in _TEXT and not file.endswith((".gz", ".bz2", ".zst", ".lz4", ".snappy")):
        with open(file, "rb") as opened:
            head = opened.read(_HEAD)
        lines = head.count(b"\n")
        return os.path.getsize(file) / len(head) * lines if lines else 1.0
    return float(frame.count())


def _of_kafka(
    session: SparkSession,
    pipeline: Pipeline,
    stream: Stream,
    options: Mapping[str, str],
    topics: Sequence[str],
    most: int,
) -> Sample:
    """Pieces of every partition, at the same parts of each."""
    with admin(session, options) as cluster:
        ends = cluster.ends(list(topics))
    total = float(sum(last - first for first, last in ends.values()))
    source = SOURCES[stream.format]
    drop = {o.lower() for o in (*source.streaming_only, "startingOffsets", "endingOffsets")}
    batch = {k: v for k, v in options.items() if k.lower() not in drop}
    each = max(1, most // (_PIECES * max(1, len(ends))))
    pieces = []
    for number in range(_PIECES):
        starts: dict[str, dict[str, int]] = {}
        stops: dict[str, dict[str, int]] = {}
        for (topic, partition), (first, last) in ends.items():
            begin = first + (last - first) * number // _PIECES
            starts.setdefault(topic, {})[str(partition)] = begin
            stops.setdefault(topic, {})[str(partition)] = min(last, begin + each)
        given = {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(stops)}
        rows = load(session.read, session, stream, batch | given, pipeline.root).toArrow()
        pieces.append(Piece(rows, total * number / _PIECES))
    cap = next((v for o, v in options.items() if o.lower() == "maxoffsetspertrigger"), None)
    return Sample(tuple(pieces), total, min(total, float(cap or total)))


def _times(
    session: SparkSession,
    pipeline: Pipeline,
    stream: Stream,
    schemas: SchemaStore,
    found: Sample,
) -> list[list[float]]:
    """The event times of each piece, in seconds, in the order of the rows."""
    from pyspark.sql import functions as F

    times = []
    for piece in found.pieces:
        only = given({stream.name: piece.rows})
        frames = Frames(session, pipeline, SOURCES, schemas, named=False, bounded=only)
        frame = frames.input(stream.name)
        column = stream.watermark.column if stream.watermark else _first_time(frame)
        if column is None:
            return []
        seconds = frame.select(F.unix_micros(column).cast("double") / 1e6).toArrow().column(0)
        times.append([t for t in seconds.to_pylist() if t is not None])
    return times


def given(rows: Mapping[str, pa.Table]) -> Any:
    """What `frames` reads in the place of sources: these rows."""

    def bounded(session: SparkSession, stream: Stream, options: Mapping[str, str]) -> DataFrame:
        return session.createDataFrame(rows[stream.name].combine_chunks())

    return bounded


def _first_time(frame: DataFrame) -> str | None:
    return next((f.name for f in frame.schema.fields if f.dataType.typeName() == "timestamp"), None)


def _rate(found: Sample, times: Sequence[Sequence[float]]) -> float:
    """Rows a second, from where the first piece begins to where the last one does."""
    begun = [(piece.begins, _low(t)) for piece, t in zip(found.pieces, times, strict=False) if t]
    if len(begun) > 1 and begun[-1][1] > begun[0][1]:
        return (begun[-1][0] - begun[0][0]) / (begun[-1][1] - begun[0][1])
    if not times or len(times[0]) < 2:
        return 0.0
    only = times[0]
    span = max(only) - min(only)
    ascending = sum(b >= a for a, b in pairwise(only)) / (len(only) - 1)
    rows = len(only) if ascending > _SORTED else found.total
    return rows / span if span > 0 else 0.0


def _low(times: Sequence[float]) -> float:
    return sorted(times)[int(len(times) * _LOW)]
