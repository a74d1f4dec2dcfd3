"""What can be said of a table's targets before its first batch; `check` and `run` ask here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from evertable.errors import Finding, Refused
from evertable.model.capabilities import Guarantee
from evertable.model.names import did_you_mean
from evertable.model.pipeline import Pipeline, SinkSpec, Table, place_of
from evertable.sinks import functions, kafka, kafka_transactions
from evertable.sinks.embedded.sink import columns_problem as embedded_problem
from evertable.sinks.postgres.columns import columns_problem as postgres_problem
from evertable.sinks.postgres.sink import examine as examine_postgres
from evertable.sinks.registry import capabilities
from evertable.spark import frames
from evertable.spark.secrets import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def sink_options(pipeline: Pipeline, table: Table, spec: SinkSpec) -> dict[str, str]:
    """What Spark's writer gets: secrets read, paths made absolute."""
    options = resolve(
        {**spec.options, **spec.unchecked_options},
        f'the sink of table "{table.name}"',
        spec.location or table.location,
    )
    frames.absolute(options, capabilities(spec).paths, pipeline.root)
    return options


def columns_fit(frame: DataFrame, table: Table) -> None:
    """The sink can keep these columns, and `partition_by` names some of them."""
    problem = None
    for spec in table.sinks:
        if spec.format == "embedded":
            problem = problem or embedded_problem(table.name, frame.schema)
        elif spec.format == "postgres":
            problem = problem or postgres_problem(frame.schema)
        elif spec.format == "kafka":
            problem = problem or kafka.columns_problem(
                frame.schema, {**spec.options, **spec.unchecked_options}
            )
    missing = [c for c in table.partition_by if c not in frame.columns]
    if missing:
        problem = f'partition_by names "{missing[0]}", which is no column of it'
    if problem:
        raise Refused(
            Finding(
                "SINK_COLUMNS",
                f'table "{table.name}" cannot be kept: {problem}',
                table.location,
                detail=f"columns: {', '.join(frame.columns)}",
                hint="give each column a name of its own that differs in more than case, "
                "and a type that the sink takes",
            )
        )


def examine(
    session: SparkSession,
    pipeline: Pipeline,
    table: Table,
    schema: StructType,
    keys: Sequence[str],
) -> Iterator[Finding]:
    """Ask each target whether it is there and takes the rows."""
    for spec in table.sinks:
        if spec.format == "python":
            yield from _own_code(pipeline, table, spec)
        found = _problem(session, pipeline, table, spec, schema, keys)
        if found:
            yield found


def _problem(
    session: SparkSession,
    pipeline: Pipeline,
    table: Table,
    spec: SinkSpec,
    schema: StructType,
    keys: Sequence[str],
) -> Finding | None:
    if spec.format not in ("kafka", "postgres"):
        return None
    options = sink_options(pipeline, table, spec)
    if spec.format == "postgres":
        return examine_postgres(table, spec, options, schema, keys)
    if spec.delivery == "exactly_once":
        about = kafka_transactions.About(pipeline.name, table, spec, options)
        return kafka_transactions.examine(about)
    return kafka.examine(session, table, spec, options)


def promise(pipeline: Pipeline, table: Table, spec: SinkSpec) -> Guarantee:
    """What a sink promises; a class of the user's says it itself."""
    known = capabilities(spec).guarantee
    if spec.format != "python" or "class" in {option.lower() for option in spec.options}:
        return known
    target = functions.loaded(spec, pipeline.root, table.location)
    own: Guarantee = getattr(target, "guarantee", known) if functions.is_sink(target) else known
    return own


def _own_code(pipeline: Pipeline, table: Table, spec: SinkSpec) -> Iterator[Finding]:
    """What a Python sink names is there, and gets nothing that it would ignore."""
    target = functions.loaded(spec, pipeline.root, table.location)
    writer = functions.row_writer(target) is not None
    place = spec.location or table.location
    if table.trigger.kind == "real_time" and not writer:
        # In real time rows come one by one.
        yield Finding(
            "TRIGGER_NOT_SUPPORTED",
            f'table "{table.name}" has a real-time trigger, which has no batches to call '
            "a function with",
            place,
            hint="name a class with process(row) instead of a function",
        )
    if "class" in {option.lower() for option in spec.options}:
        return
    modes = getattr(target, "modes", functions.PYTHON.modes)
    if functions.is_sink(target) and table.output_mode not in modes:
        yield Finding(
            "SINK_MODE",
            f'your sink of table "{table.name}" does not take {table.output_mode} mode',
            place,
            detail=f"its modes: {', '.join(modes)}",
        )
    extra = functions.options_of(spec.options)
    if extra and not functions.is_sink(target):
        name = next(iter(extra))
        yield Finding(
            "OPTION_UNKNOWN",
            f'sink "python" of table "{table.name}" has no option "{name}"',
            place_of(spec, name) or table.location,
            hint=did_you_mean(name, ("call", "class", "ledger"))
            or "a class with open(table, query_id) takes options of its own",
        )
    if spec.ledger is not None:
        yield Finding(
            "SINK_REPEATS",
            f'the sink of table "{table.name}" may get its last batch again after a crash',
            place,
            detail="the ledger kept here and the sink's own work are not one commit; killed "
            "between the two, that one batch comes again, with the same number and rows",
            hint="make the work harmless to repeat, or write a class whose guarantee is "
            '"exactly once"',
            severity="note",
        )
