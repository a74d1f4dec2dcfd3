"""What Spark's own analysis says of tables that are not started; `check` and `run` ask here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evertable.check.foreseen import Foreseen
from evertable.check.plan_rules import check_plan
from evertable.errors import EvertableError, Finding, Refused, errors_of
from evertable.model.capabilities import Guarantee, SourceCapabilities
from evertable.model.pipeline import Pipeline, Stream, Table, place_of
from evertable.run import targets
from evertable.run.foresight import failures, foresee
from evertable.run.keys import key_of, versions_fit
from evertable.run.slots import Need, slots_of, too_few
from evertable.sources.examine import Examined, examine
from evertable.sources.registry import SOURCES
from evertable.spark import frames, incremental, planner
from evertable.spark.errors import explain
from evertable.spark.schemas import SchemaStore
from evertable.spark.session import SOURCE_EVOLUTION, for_table, is_local, of_a_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
# Options that Spark refuses in real time, after the start.
_OF_BATCHES = {"maxoffsetspertrigger", "minoffsetspertrigger", "minpartitions", "maxtriggerdelay"}


@dataclass(frozen=True)
class Analysed:
    """A table that Spark accepts: its rows to be, and what a row is replaced by."""

    frame: DataFrame
    keys: tuple[str, ...]
    built: frames.Built  # what it reads
    sources: Mapping[str, Examined]  # of each stream it reads
    promises: tuple[Guarantee, ...]  # of each sink
    seen: Foreseen  # what it will keep and emit
    findings: tuple[Finding, ...] = ()  # none of them forbids a start


@dataclass(frozen=True)
class Report:
    """What `check` has to say of one table."""

    table: Table
    analysed: Analysed | None
    findings: tuple[Finding, ...]


def table_session(spark: SparkSession, confs: Mapping[str, str], table: Table) -> SparkSession:
    """The table's own session."""
    policy = {"spark.sql.streaming.multipleWatermarkPolicy": table.watermark_policy}
    return for_table(spark, {k: v for k, v in confs.items() if of_a_query(k)} | policy)


def analyse_table(
    session: SparkSession,
    pipeline: Pipeline,
    table: Table,
    schemas: SchemaStore,
    *,
    named: bool | None = None,
    dry: bool = False,
    unfit: str = "",
    sources: Mapping[str, SourceCapabilities] = SOURCES,
    opened: frames.Opened | None = None,
    shaped: bool = False,
) -> Analysed:
    """Build a table's frame and have Spark judge it in the table's mode; raises Refused.

    `dry`: nothing will run, so that what other tables will make may be missing. `unfit`: why its
    planner is not asked. `opened` plays the sources. `shaped` asks for what the query computes.
    """
    built = frames.build(
        session, pipeline, table, sources, schemas, named=named, dry=dry, opened=opened
    )
    if not built.frame.isStreaming:
        raise Refused(
            Finding(
                "NOT_STREAMING",
                f'table "{table.name}" reads no stream, so it would never change',
                table.query.location,
                hint="read a stream, or compute it with a batch job",
            )
        )
    _trigger_fits(table, built.streams, sources)
    reason = planner.refusal(built.frame, table.output_mode, table.trigger.kind)
    if reason:
        finding = explain(reason, f'table "{table.name}"')
        of_query = finding.code in ("QUERY_NOT_STREAMABLE", "JOIN_UNBOUNDED")
        raise Refused(finding.at(table.query.location if of_query else table.location))
    if table.async_progress and any(
        o.kind in planner.STATEFUL_KINDS for o in planner.operators(built.frame)
    ):
        raise Refused(
            Finding(
                "TRIGGER_NOT_SUPPORTED",
                f'table "{table.name}" cannot track progress asynchronously: its query keeps state',
                place_of(table.sinks[0], "asyncProgressTrackingEnabled"),
                hint="leave asyncProgressTrackingEnabled out",
            )
        )
    if planner.joins_without_equality(built.frame):
        raise Refused(
            Finding(
                "JOIN_UNBOUNDED",
                f'table "{table.name}" joins streams with nothing equal',
                table.query.location,
                detail="each row would be kept for ever and compared with every other one; Spark "
                "refuses it after the start",
                hint="join on an equal column, and on a range of time",
            )
        )
    targets.columns_fit(built.frame, table)
    versions_fit(built.frame, table)
    played = opened is not None  # then no source is asked for anything
    streams = () if played else built.streams
    examined = _examine(session, pipeline, streams, sources, schemas)
    findings = [f for one in examined.values() for f in one.findings]
    keys = tuple(key_of(built.frame, table))
    findings += targets.examine(session, pipeline, table, built.frame.schema, keys)
    if errors_of(findings):
        raise Refused(*findings)
    promises = tuple(targets.promise(pipeline, table, spec) for spec in table.sinks)
    seen = foresee(
        session, pipeline, table, built, promises, sources, unfit, shaped=shaped, played=played
    )
    findings += [*failures(seen), *check_plan(seen)]
    if errors_of(findings):
        raise Refused(*findings)
    return Analysed(built.frame, keys, built, examined, promises, seen, tuple(findings))


def _trigger_fits(
    table: Table, streams: Iterable[Stream], sources: Mapping[str, SourceCapabilities]
) -> None:
    """Few sources can be read row by row."""
    kind = table.trigger.kind
    if kind not in ("continuous", "real_time"):
        return
    for stream in streams:
        if not getattr(sources[stream.format], kind):
            able = sorted(name for name, source in sources.items() if getattr(source, kind))
            raise Refused(
                Finding(
                    "TRIGGER_NOT_SUPPORTED",
                    f'table "{table.name}" has a {kind.replace("_", "-")} trigger, and stream '
                    f'"{stream.name}" ({stream.format}) cannot be read so',
                    table.location,
                    hint=f"it reads {', '.join(able)}; any other trigger reads {stream.format}",
                )
            )
        for option in stream.options:
            if kind == "real_time" and option.lower() in _OF_BATCHES:
                raise Refused(
                    Finding(
                        "TRIGGER_NOT_SUPPORTED",
                        f'table "{table.name}" has a real-time trigger, and stream '
                        f'"{stream.name}" has {option}, which is for batches',
                        place_of(stream, option),
                        hint=f"leave {option} out: rows are read as they come",
                    )
                )


def _examine(
    session: SparkSession,
    pipeline: Pipeline,
    streams: Iterable[Stream],
    sources: Mapping[str, SourceCapabilities],
    schemas: SchemaStore,
) -> dict[str, Examined]:
    """Ask the source of each stream whether it is there."""
    options = frames.Frames(session, pipeline, sources, schemas).options
    return {
        s.name: examine(session, s, options(s, sources[s.format], f'stream "{s.name}"'))
        for s in streams
    }


def slots_problem(
    spark: SparkSession, analysed: Sequence[tuple[Table, Analysed]]
) -> Finding | None:
    """Too few task slots for these tables together. Only a local master's are known before."""
    context = spark.sparkContext
    if not is_local(context.master or "") or not any(t.trigger.holds_slots for t, _ in analysed):
        return None
    needs = [Need(table, _slots(table, one)) for table, one in analysed]
    return too_few(needs, context.defaultParallelism)


def _slots(table: Table, analysed: Analysed) -> int:
    shuffled = [o for o in planner.operators(analysed.frame) if o.kind in planner.SHUFFLED]
    width = int(analysed.frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    partitions = [examined.partitions for examined in analysed.sources.values()]
    return slots_of(table, partitions, len(shuffled), width)


def analyse(
    spark: SparkSession, confs: Mapping[str, str], pipeline: Pipeline, schemas: SchemaStore
) -> list[Report]:
    """Every table of a pipeline; one that fails does not hide what is wrong with another."""
    unfit = incremental.unfit(for_table(spark, {SOURCE_EVOLUTION: "false"}))

    def report(table: Table) -> Report:
        return _report(spark, confs, pipeline, table, schemas, unfit)

    # Two at a time: while Spark plans the one, Python reads the plan of the other.
    with ThreadPoolExecutor(max_workers=2) as pool:
        reports = list(pool.map(report, pipeline.tables))
    problem = slots_problem(spark, [(r.table, r.analysed) for r in reports if r.analysed])
    if problem is None:
        return reports
    return [
        replace(r, findings=(*r.findings, problem)) if r.table.location == problem.place else r
        for r in reports
    ]


def analyse_views(spark: SparkSession, pipeline: Pipeline, schemas: SchemaStore) -> list[Finding]:
    """What is wrong with views, those that no table reads included."""
    findings: list[Finding] = []
    for view in pipeline.views:
        session = for_table(spark, {SOURCE_EVOLUTION: "false"})
        built = frames.Frames(session, pipeline, SOURCES, schemas, named=False)
        try:
            built.input(view.name)
        except EvertableError as e:
            findings += e.findings
    return findings


def _report(
    spark: SparkSession,
    confs: Mapping[str, str],
    pipeline: Pipeline,
    table: Table,
    schemas: SchemaStore,
    unfit: str,
) -> Report:
    try:
        session = table_session(spark, confs, table)
        analysed = analyse_table(session, pipeline, table, schemas, dry=True, unfit=unfit)
    except EvertableError as e:
        return Report(table, None, tuple(_without_network(f) for f in e.findings))
    findings = list(analysed.findings)
    if not analysed.built.named:
        findings.append(
            Finding(
                "SOURCE_UNNAMED",
                f'table "{table.name}" uses one DataFrame twice, so its sources have no names',
                table.location,
                detail="adding, removing or reordering its streams later will not fit its "
                "checkpoint",
                hint="take each use as a parameter of its own, through a view",
                severity="note",
            )
        )
    return Report(table, analysed, tuple(findings))


def _without_network(finding: Finding) -> Finding:
    """`check` also runs where no broker can be reached; `run` needs it."""
    if finding.code not in ("BROKER_UNREACHABLE", "SINK_UNREACHABLE"):
        return finding
    return replace(
        finding, severity="warning", detail=f"{finding.detail}; what is there was not looked at"
    )
