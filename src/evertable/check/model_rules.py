"""Rules that need nothing but the model and the records of sources and sinks. No Spark.

A rule is a function of one `Known`; `check_model` runs them all, in this order.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from evertable.check.known import Known, Rule
from evertable.check.options import one_of, options
from evertable.check.pages import says
from evertable.check.sink_rules import SINK_RULES
from evertable.errors import Finding
from evertable.model.durations import millis
from evertable.model.names import did_you_mean
from evertable.model.pipeline import Pipeline, Query, Static, Stream, place_of

INTERVALS = {"processing_time": "5 seconds", "continuous": "1 second", "real_time": "5 minutes"}


def check_model(known: Known) -> list[Finding]:
    """Everything that is wrong with a pipeline and can be seen without Spark."""
    return [finding for rule in RULES for finding in rule(known)]


@says("FORMAT_UNKNOWN")
def source_exists(known: Known) -> Iterator[Finding]:
    """The format of a stream or static is a source we know."""
    for kind, entry in _inputs(known.pipeline):
        source = known.sources.get(entry.format)
        if source is None:
            yield Finding(
                "FORMAT_UNKNOWN",
                f'{kind} "{entry.name}" has format "{entry.format}", which is no source',
                entry.location,
                hint=did_you_mean(entry.format, known.sources)
                or f"one of {', '.join(sorted(known.sources))}",
            )
        elif kind == "static" and not source.bounded:
            yield Finding(
                "FORMAT_UNKNOWN",
                f'static "{entry.name}" has format "{entry.format}", which never ends',
                entry.location,
                hint="declare it under `streams:`",
            )


@says("OPTION_UNKNOWN", "OPTION_MISPLACED", "OPTION_INVALID", "OPTION_MISSING")
def source_options(known: Known) -> Iterator[Finding]:
    """Spark takes any option and ignores what it does not know, so names are checked here."""
    for kind, entry in _inputs(known.pipeline):
        source = known.sources.get(entry.format)
        if source is None:
            continue
        allowed = source.options - (
            source.streaming_only if kind == "static" else source.bounded_only
        )
        yield from options(f'{kind} "{entry.name}"', source, entry, allowed)


@says("OPTIONS_EXCLUDE", "OPTION_MISSING")
def source_choice(known: Known) -> Iterator[Finding]:
    """Where a source is told in one of several ways what to read, it is told in one."""
    for kind, entry in _inputs(known.pipeline):
        source = known.sources.get(entry.format)
        if source is not None:
            yield from one_of(f'{kind} "{entry.name}"', source, entry)


@says("OPTIONS_EXCLUDE")
def source_caps(known: Known) -> Iterator[Finding]:
    """Two caps on one batch exclude each other."""
    for stream in known.pipeline.streams:
        source = known.sources.get(stream.format)
        if source is None or source.cap is None:
            continue
        caps = {source.cap[0].lower(), *(c.lower() for c in source.other_caps)}
        given = [o for o in stream.options if o.lower() in caps]
        if len(given) > 1:
            yield Finding(
                "OPTIONS_EXCLUDE",
                f'stream "{stream.name}" has both {given[0]} and {given[1]}',
                stream.location,
                hint="Spark takes one of them",
            )


@says("SCHEMA_MISPLACED")
def schema_fits(known: Known) -> Iterator[Finding]:
    """A schema is given only where the source takes one."""
    for kind, entry in _inputs(known.pipeline):
        source = known.sources.get(entry.format)
        if source is not None and entry.schema and not source.takes_schema:
            yield Finding(
                "SCHEMA_MISPLACED",
                f'{kind} "{entry.name}" has a schema, but {entry.format} has columns of its own',
                entry.location,
                hint="leave `schema` out; `decode:` turns its `value` column into columns",
            )


@says("KEY_MISPLACED", "KEY_MISSING", "SCHEMA_MISPLACED")
def decode_fits(known: Known) -> Iterator[Finding]:
    """Decoding json, csv and avro needs a schema; text and base64 have none."""
    for stream in known.pipeline.streams:
        decode = stream.decode
        if decode is None:
            continue
        what = f'decode of stream "{stream.name}"'
        if decode.format in ("text", "base64"):
            if decode.schema:
                yield Finding(
                    "SCHEMA_MISPLACED", f"{what} has a schema, but {decode.format} has no columns",
                    stream.location,
                )  # fmt: skip
        elif not decode.schema:
            example = "ad.avsc" if decode.format == "avro" else '"ad STRING, cost DOUBLE"'
            yield Finding(
                "KEY_MISSING", f'{what} has no "schema"', stream.location,
                hint=f"such as schema: {example}",
            )  # fmt: skip
        if decode.registry_ids and decode.format != "avro":
            yield Finding(
                "KEY_MISPLACED", f"{what} has registry_ids, which are for avro", stream.location
            )


@says("WATERMARK_MISSING")
def dedup_within_watermark(known: Known) -> Iterator[Finding]:
    """`within: watermark` needs one."""
    for stream in known.pipeline.streams:
        if stream.dedup and stream.dedup.within == "watermark" and not stream.watermark:
            yield Finding(
                "WATERMARK_MISSING",
                f'stream "{stream.name}" dedups within a watermark that it does not have',
                stream.location,
                hint="add `watermark: {column: …, delay: …}` to the stream",
            )


@says("VALUE_INVALID")
def trigger_interval(known: Known) -> Iterator[Finding]:
    """Some triggers need an interval, a real-time one a long one; the others take none."""
    for table in known.pipeline.tables:
        trigger = table.trigger
        needs = trigger.kind in ("processing_time", "continuous", "real_time")
        if needs and trigger.interval is None:
            yield Finding(
                "VALUE_INVALID",
                f'the trigger of table "{table.name}" has no interval',
                table.location,
                hint=f"trigger: {{{trigger.kind}: {INTERVALS[trigger.kind]}}}",
            )
        elif trigger.kind == "real_time" and millis(trigger.interval or "0 seconds") < 5_000:
            yield Finding(
                "VALUE_INVALID",
                f'the real-time trigger of table "{table.name}" is shorter than 5 seconds',
                table.location,
                detail="it is how often progress is committed, not how long rows take",
                hint="trigger: {real_time: 5 minutes}",
            )
        elif not needs and trigger.interval is not None:
            yield Finding(
                "VALUE_INVALID",
                f'the {trigger.kind} trigger of table "{table.name}" takes no interval',
                table.location,
            )


@says("TRIGGER_NOT_SUPPORTED")
def trigger_fits(known: Known) -> Iterator[Finding]:
    """Continuous and real-time triggers take few sinks, and real time takes update mode only."""
    for table in known.pipeline.tables:
        kind = table.trigger.kind
        if kind not in ("continuous", "real_time"):
            continue
        what = f'table "{table.name}" has a {kind.replace("_", "-")} trigger'
        takers = sorted(f for f, s in known.sinks.items() if getattr(s, kind))
        for spec in table.sinks:
            sink = known.sink(spec)
            if sink is not None and not getattr(sink, kind):
                yield Finding(
                    "TRIGGER_NOT_SUPPORTED",
                    f'{what}, which sink "{spec.format}" does not take',
                    spec.location or table.location,
                    hint=f"it goes into {', '.join(takers)}; any other trigger goes into "
                    f"{spec.format}",
                )
        if len(table.sinks) > 1:
            yield Finding(
                "TRIGGER_NOT_SUPPORTED",
                f"{what}, which has no batches that several sinks could get",
                table.sinks[1].location or table.location,
                hint="one sink, or another trigger",
            )
        if kind == "real_time" and table.output_mode != "update":
            yield Finding(
                "TRIGGER_NOT_SUPPORTED",
                f"{what}, which takes update mode only",
                table.location,
                hint="output_mode: update",
            )


@says("TRIGGER_NOT_SUPPORTED")
def async_fits(known: Known) -> Iterator[Finding]:
    """Logs behind the batches: for tables that run on, into one sink of Spark's own."""
    for table in known.pipeline.tables:
        if not table.async_progress:
            continue
        kind = table.trigger.kind
        if table.trigger.ends or kind == "continuous" or len(table.sinks) > 1:
            why = "has several sinks" if len(table.sinks) > 1 else f"has trigger {kind}"
            yield Finding(
                "TRIGGER_NOT_SUPPORTED",
                f'table "{table.name}" cannot track progress asynchronously: it {why}',
                place_of(table.sinks[0], "asyncProgressTrackingEnabled"),
                hint="it takes the default, processing-time and real-time triggers, and one sink",
            )


@says("NAME_UNKNOWN")
def parameters_exist(known: Known) -> Iterator[Finding]:
    """The parameters of a Python function are names of streams, statics and views."""
    tables = known.pipeline.tables
    names = {entry.name for entry in (*known.pipeline.inputs(), *tables)}
    for kind, name, query in _queries(known.pipeline):
        if query.function is None:
            continue
        for parameter in inspect.signature(query.function).parameters:
            if parameter not in names:
                yield Finding(
                    "NAME_UNKNOWN",
                    f'{kind} "{name}" asks for "{parameter}", which is no stream, static or view',
                    query.location,
                    hint=did_you_mean(parameter, names) or f"known: {', '.join(sorted(names))}",
                )


RULES: tuple[Rule, ...] = (
    source_exists,
    source_options,
    source_choice,
    source_caps,
    schema_fits,
    decode_fits,
    dedup_within_watermark,
    trigger_interval,
    trigger_fits,
    async_fits,
    *SINK_RULES,
    parameters_exist,
)


def _inputs(pipeline: Pipeline) -> Iterator[tuple[str, Stream | Static]]:
    for stream in pipeline.streams:
        yield "stream", stream
    for static in pipeline.statics:
        yield "static", static


def _queries(pipeline: Pipeline) -> Iterator[tuple[str, str, Query]]:
    for view in pipeline.views:
        yield "view", view.name, view.query
    for table in pipeline.tables:
        yield "table", table.name, table.query
