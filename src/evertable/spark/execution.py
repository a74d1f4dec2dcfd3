"""A query as Spark would plan one of its batches, without starting it (private API, 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evertable.model.pipeline import OutputMode
from evertable.spark import planner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WATERMARK = 1_000_000_000_000  # milliseconds; a number that is known again in a plan

# What StreamExecution sets in its own session.
_AS_STREAMS_DO = {
    "spark.sql.cbo.enabled": "false",
    "spark.sql.requireAllClusterKeysForDistribution": "false",
    "spark.sql.adaptive.enabled": "false",
}
_PARTITIONS = "spark.sql.shuffle.partitions"
_PARTITIONS_OF_STATE = "spark.sql.streaming.internal.stateStore.partitions"


@dataclass(frozen=True)
class Moment:
    """Which batch is planned, and on which checkpoint."""

    batch: int = 1
    state: str = "<unknown>"  # the folder of its state, as a URI
    before: int | None = WATERMARK - 1000  # the watermark of the batch before; None for the first
    watermark: int = WATERMARK
    first: bool = False  # of a run: then Spark looks at the schemas of the state that is there
    confs: Mapping[str, str] = field(default_factory=dict)  # that the checkpoint has pinned


def execution_of(frame: DataFrame, mode: OutputMode, moment: Moment = Moment()) -> Any:
    """The execution of that batch, planned. `optimizedPlan` and `executedPlan` can be asked."""
    session: Any = frame.sparkSession
    jvm: Any = session._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    clone = session._jsparkSession.cloneSession()
    confs = {_PARTITIONS_OF_STATE: clone.conf().get(_PARTITIONS), **_AS_STREAMS_DO, **moment.confs}
    for conf, value in confs.items():
        clone.conf().set(conf, value)
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    java_mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()

    def metadata(watermark: int) -> Any:
        return streaming.checkpointing.OffsetSeqMetadata.apply(watermark, 0, clone.conf())

    def module(name: str) -> Any:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return loader.loadClass(f"{name}$").getField("MODULE$").get(None)

    empty = module("scala.collection.mutable.HashMap").empty
    active = jvm.org.apache.spark.sql.classic.SparkSession
    option = jvm.scala.Option
    active.setActiveSession(clone)
    try:
        execution = streaming.runtime.IncrementalExecution(
            clone,
            planner.analyzed(frame),
            java_mode,
            moment.state,
            jvm.java.util.UUID.randomUUID(),
            jvm.java.util.UUID.randomUUID(),
            moment.batch,
            option.empty() if moment.before is None else option.apply(metadata(moment.before)),
            metadata(moment.watermark),
            streaming.runtime.WatermarkPropagator.apply(clone.sessionState().conf()),
            moment.first,
            empty(),
            empty(),
            module("org.apache.spark.sql.execution.CommandExecutionMode").ALL(),
            False,
            False,
        )
        execution.executedPlan()
        return execution
    finally:
        active.setActiveSession(session._jsparkSession)
