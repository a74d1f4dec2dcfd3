"""All kinds of sink, by the name of their format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evertable.model.capabilities import Formats, SinkCapabilities
from evertable.model.pipeline import Pipeline, SinkSpec, Table
from evertable.model.storage import Storage
from evertable.sinks import (
    embedded,
    files,
    functions,
    kafka,
    kafka_transactions,
    own,
    postgres,
    spark_writers,
)
from evertable.sinks.seam import Sink
from evertable.spark.reading import registered
from evertable.spark.shipping import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_KNOWN = (
    embedded.CAPABILITIES,
    *files.SINKS,
    functions.CONSOLE,
    functions.PYTHON,
    kafka.CAPABILITIES,
    postgres.CAPABILITIES,
    *spark_writers.SINKS,
)

SINKS: Formats[SinkCapabilities] = Formats(
    {format: sink for sink in _KNOWN for format in sink.formats}, spark_writers.stranger
)


def capabilities(spec: SinkSpec) -> SinkCapabilities:
    """The record of a sink, for the delivery that it is asked for."""
    return SINKS[spec.format].delivering(spec.delivery)


def open_sink(
    session: SparkSession,
    pipeline: Pipeline,
    table: Table,
    spec: SinkSpec,
    options: Mapping[str, str],
    show: functions.Show,
) -> Sink | None:
    """The connector of one sink of a table; None where Spark runs the sink by itself.

    `options` are those of the sink, with secrets read and paths made absolute.
    """
    if table.trigger.holds_slots:  # there are no batches to hand to anybody
        return None
    owner = f"{pipeline.name}/{table.name}"
    if spec.format in _FILES:
        return files.FileSink(session, spec.format, options, table.partition_by, owner)
    match spec.format:
        case "embedded":
            return embedded.EmbeddedSink(Storage.of(pipeline).table_file(table.name), owner=owner)
        case "console":
            return functions.ConsoleSink(show)
        case "postgres":
            return postgres.PostgresSink(table, spec, options, owner)
        case "kafka" if spec.delivery == "exactly_once":
            about = kafka_transactions.About(pipeline.name, table, spec, options)
            return kafka_transactions.TransactionSink(about)
        case "python" if "class" not in {option.lower() for option in options}:
            return _own_code(session, pipeline, table, spec, options)
    if len(table.sinks) == 1:
        return None
    format = spec.format
    if format == "python":
        target = _shipped(session, pipeline, table, spec)
        format = registered(
            session, target, pipeline.root, f'the sink of table "{table.name}"', spec.location
        )
    return spark_writers.WriterSink(SINKS[spec.format], format, options, table.partition_by)


def _own_code(
    session: SparkSession,
    pipeline: Pipeline,
    table: Table,
    spec: SinkSpec,
    options: Mapping[str, str],
) -> Sink:
    """A function a batch, a writer of rows, or a connector of the user's."""
    target = _shipped(session, pipeline, table, spec)
    writer = functions.row_writer(target)
    sink: Sink
    if writer is not None:
        sink = functions.RowWriterSink(writer)
    elif functions.is_sink(target):
        sink = own.OwnSink(own.made(target, functions.options_of(options), table))
    else:
        sink = functions.FunctionSink(target)
    if spec.ledger is None:
        return sink
    file = Storage.of(pipeline).ledger_file(table.name, table.sinks.index(spec))
    return own.LedgeredSink(sink, file, f"{pipeline.name}/{table.name}")


def start_writer(
    writer: DataStreamWriter,
    session: SparkSession,
    pipeline: Pipeline,
    table: Table,
    options: Mapping[str, str],
) -> StreamingQuery:
    """Start a table whose only sink Spark runs by itself."""
    (spec,) = table.sinks
    by_lower = {option.lower(): value for option, value in options.items()}
    format, named = spec.format, ("table", "call", "class")
    rest = {option: v for option, v in options.items() if option.lower() not in named}
    if table.partition_by:
        writer = writer.partitionBy(*table.partition_by)
    if format == "table":
        return writer.options(**rest).toTable(by_lower["table"])
    if format == "python":
        target = _shipped(session, pipeline, table, spec)
        row_writer = functions.row_writer(target)
        if row_writer is not None:
            return writer.foreach(row_writer).start()
        what = f'the sink of table "{table.name}"'
        format = registered(session, target, pipeline.root, what, spec.location or table.location)
        return writer.format(format).options(**rest).start()
    return writer.format(format).options(**options).start()


def _shipped(session: SparkSession, pipeline: Pipeline, table: Table, spec: SinkSpec) -> Any:
    """What a Python sink names, with its modules on their way to the workers."""
    target = functions.loaded(spec, pipeline.root, table.location)
    ship(session, pipeline.root)
    return target


_FILES = frozenset(format for sink in files.SINKS for format in sink.formats)
