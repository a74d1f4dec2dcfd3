"""Where the streams of a table begin, when it starts over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from evertable.errors import Finding, Refused
from evertable.model.pipeline import Pipeline, Stream, Table
from evertable.plan.answers import Answer
from evertable.plan.manifest import Manifest
from evertable.spark import seen_files
from evertable.spark.checkpoint import Checkpoint
from evertable.spark.frames import local_path

_FILES = ("text", "csv", "json", "parquet", "orc", "xml")


def positioned(
    pipeline: Pipeline, table: Table, checkpoint: Checkpoint, answer: Answer, made: Manifest
) -> Pipeline:
    """The pipeline whose streams begin where the answer says; the checkpoint has no batch yet."""
    streams = {stream.name: stream for stream in pipeline.streams}
    for source in made.sources:
        stream = streams.get(source.stream)
        if stream is None:
            continue
        if stream.format == "kafka":
            streams[stream.name] = _of_kafka(stream, answer, source.use)
        elif stream.format in _FILES:
            _of_files(pipeline, stream, checkpoint, answer, source.use)
        elif answer.position != "earliest":
            raise Refused(
                Finding(
                    "ANSWER_NOT_OFFERED",
                    f'stream "{stream.name}" cannot begin at "{answer.position}"',
                    stream.location,
                    detail=f"a source of format {stream.format} has one beginning only",
                    hint=f"--answer {table.name}=start_over:earliest",
                )
            )
    return replace(pipeline, streams=tuple(streams.values()))


def _of_kafka(stream: Stream, answer: Answer, use: str) -> Stream:
    rest = {o: v for o, v in stream.options.items() if not o.lower().startswith("starting")}
    old = (answer.from_offsets or {}).get(use)
    if answer.position in ("earliest", "latest"):
        begin = {"startingOffsets": answer.position}
    elif answer.position == "old":
        begin = {"startingOffsets": old} if old else {"startingOffsets": "earliest"}
    else:
        begin = {
            "startingTimestamp": str(int(_seconds(answer.position) * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    return replace(stream, options={**rest, **begin})


def _of_files(
    pipeline: Pipeline, stream: Stream, checkpoint: Checkpoint, answer: Answer, use: str
) -> None:
    if answer.position == "earliest":
        return
    checkpoint.make_query_id()
    if answer.position == "old":
        kept = checkpoint.newest_kept()
        entries = seen_files.seen(kept, use) if kept else []
    else:
        path = next(v for o, v in stream.options.items() if o.lower() == "path")
        before = None if answer.position == "latest" else _seconds(answer.position)
        entries = seen_files.files_there(local_path(path, pipeline.root), before)
    seen_files.take_for_read(checkpoint.folder, use, entries)


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
