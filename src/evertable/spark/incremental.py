"""A query planned as Spark would run its next batch, without starting it (private API, 4.3).

The watermark is a known number, so that what evicts state comes back as literals: how long
something is kept is the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evertable.location import Location
from evertable.model.facts import Plan
from evertable.model.pipeline import OutputMode, TriggerKind
from evertable.spark import hazards, planner
from evertable.spark.execution import execution_of
from evertable.spark.shapes import shape_of
from evertable.spark.state_operators import Reading, stream_names
from evertable.spark.steps import steps_of
from evertable.spark.trees import Node

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MODES: tuple[OutputMode, ...] = ("append", "update", "complete")


def plan_of(
    frame: DataFrame,
    mode: OutputMode,
    trigger: TriggerKind = "default",
    texts: Mapping[str, Location] | None = None,
    *,
    shaped: bool = False,
) -> Plan:
    """What Spark's own planner says of a streaming DataFrame in a mode.

    `texts` are the SQL texts that it was made of, and where each of them begins; `shaped` asks
    for what it computes, too.
    """
    refusals = refusals_of(frame, trigger)
    if mode in refusals:
        return Plan(refusals)
    query = planner.query_of(frame)
    asked = planner.asked(query)
    try:
        execution = execution_of(frame, mode)
        root = Node(execution.executedPlan())
    except Exception as e:
        failure = hazards.failure_of_planning(e)
        if failure is None:
            raise
        return Plan(refusals, asked=asked, failure=failure)
    texts = texts or {}
    reading = Reading(frame.sparkSession, root, stream_names(query), mode, texts)
    kept = reading.kept()
    return Plan(
        refusals,
        tuple(one for _, found in kept for one in found),
        tuple(reading.marks()),
        reading.delay,
        reading.policy,
        reading.partitions,
        asked,
        tuple(hazards.risks(frame.sparkSession, query, texts)),
        hazards.unmarked_union(root),
        hazards.by_batch(root),
        hazards.moved_filters(query, root),
        hazards.largest_static(query),
        steps=steps_of(root, dict(kept), reading.names),
        shape=shape_of(execution, root, reading.names, clock=bool(asked.clock)) if shaped else None,
    )


def refusals_of(frame: DataFrame, trigger: TriggerKind) -> dict[str, str]:
    """Spark's reason for each mode that is not legal for a query."""
    found: dict[str, str] = {}
    for one in _MODES:
        reason = planner.refusal(frame, one, trigger)
        if reason is not None:
            found[one] = " ".join(str(reason).partition(";\n")[0].split())
    return found


def unfit(spark: SparkSession) -> str:
    """Why this Spark does not fit what is asked here; nothing where it does.

    A query whose state is known is planned, and the answer compared.
    """
    from pyspark.sql import functions as F

    try:
        rows = spark.readStream.format("rate").load().withWatermark("timestamp", "10 seconds")
        frame = rows.groupBy(F.window("timestamp", "1 minute")).count()
        found = plan_of(frame, "append").kept
    except Exception as e:
        return " ".join(str(e).split())[:200] or type(e).__name__
    told = [(k.kind, k.bound, k.millis, k.window) for k in found]
    expected = [("window", "bounded", 10_000, 60_000)]
    return "" if told == expected else f"its planner says {told} in the place of {expected}"
