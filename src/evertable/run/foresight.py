"""What a table will keep and emit, asked of Spark's planner before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evertable.check.foreseen import Foreseen, Target
from evertable.errors import Finding
from evertable.model.capabilities import Guarantee, SourceCapabilities
from evertable.model.facts import Plan
from evertable.model.pipeline import Pipeline, Table
from evertable.sinks.registry import capabilities
from evertable.spark import incremental, planner
from evertable.spark.errors import explain_text
from evertable.spark.frames import Built
from evertable.spark.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITIONS = "spark.sql.shuffle.partitions"


def foresee(
    session: SparkSession,
    pipeline: Pipeline,
    table: Table,
    built: Built,
    promises: Sequence[Guarantee],
    sources: Mapping[str, SourceCapabilities],
    unfit: str = "",
    *,
    shaped: bool = False,
    played: bool = False,
) -> Foreseen:
    """The facts that rules about a table's plan judge by."""
    context = session.sparkContext
    return Foreseen(
        table,
        Plan(unknown=unfit) if unfit else _plan(table, built, shaped, played),
        lossy=tuple(s.name for s in built.streams if not sources[s.format].replays),
        twice=built.twice,
        targets=tuple(
            Target(spec, capabilities(spec), promise)
            for spec, promise in zip(table.sinks, promises, strict=True)
        ),
        local=is_local(context.master or ""),
        slots=context.defaultParallelism,
        partitions_given=_PARTITIONS in pipeline.spark,
    )


def failures(seen: Foreseen) -> Iterator[Finding]:
    """Why Spark would end the query in its first batch, in our words."""
    what = f'table "{seen.table.name}"'
    texts = [(seen.plan.failure, None), *((k.failure, k.place) for k in seen.plan.kept)]
    for text, place in texts:
        if text:
            at = place or seen.table.query.location or seen.table.location
            finding = explain_text(text, what, at)
            yield replace(finding, detail=finding.detail or "Spark says so in the first batch only")


# What was said of queries whose sources are played: tests say the same pipeline again and again.
_known: dict[object, Plan] = {}


def _plan(table: Table, built: Built, shaped: bool, played: bool) -> Plan:
    """Spark's planner may not be what it was; then a table runs all the same."""
    key = None
    try:
        if played and not shaped and (query := planner.fingerprint(built.frame)):
            key = query, table.output_mode, table.trigger.kind, tuple(built.texts.items())
            if key in _known:
                return _known[key]
        plan = incremental.plan_of(
            built.frame, table.output_mode, table.trigger.kind, built.texts, shaped=shaped
        )
    except Exception as e:
        return Plan(unknown=" ".join(str(e).split())[:200] or type(e).__name__)
    if key is not None:
        _known[key] = plan
    return plan
