"""The plan of a whole pipeline: each table against its checkpoint, or against another revision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from evertable.errors import EvertableError
from evertable.model.pipeline import Pipeline, Table
from evertable.model.standing import Standing
from evertable.model.storage import Storage
from evertable.plan.changes import Change, Judgement
from evertable.plan.edit import Edit
from evertable.plan.judge import judge
from evertable.run.analysis import Analysed, analyse_table, table_session
from evertable.run.manifests import manifest_of
from evertable.run.opening import open_spark
from evertable.run.planning import Planning
from evertable.spark import session as spark_session
from evertable.spark.restart import restart_after
from evertable.spark.schemas import SchemaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plans_of(pipeline: Pipeline, logs: str, spark: SparkSession | None = None) -> list[Judgement]:
    """What it means to run the pipeline as it is now."""
    spark = spark or open_spark(pipeline, logs=logs, quick=True)
    confs = spark_session.all_confs(pipeline.spark, logs=logs)
    return [_plan(pipeline, table, spark, confs) for table in pipeline.tables]


def _plan(
    pipeline: Pipeline, table: Table, spark: SparkSession, confs: Mapping[str, str]
) -> Judgement:
    planning = Planning(pipeline, table)
    try:
        analysed = _analysed(pipeline, table, spark, confs, planning.checkpoint.sources_named())
        judgement, _ = planning.judged(analysed)
    except EvertableError as e:
        return _not_analysed(table, e, planning.standing())
    kept = planning.answers.read()
    told = judgement.told
    if kept and not judgement.goes_on and kept.fits(told.get("old", ""), told.get("new", "")):
        return replace(judgement, answer=kept.way)
    return judgement


def _analysed(
    pipeline: Pipeline,
    table: Table,
    spark: SparkSession,
    confs: Mapping[str, str],
    named: bool | None,
) -> Analysed:
    schemas = SchemaStore(Storage.of(pipeline).schemas, keep=False)
    session = table_session(spark, confs, table)
    return analyse_table(session, pipeline, table, schemas, named=named, dry=True, shaped=True)


def _not_analysed(table: Table, error: EvertableError, standing: Standing) -> Judgement:
    """It would not start at all, whatever its checkpoint."""
    finding = error.findings[0]
    change = Change(
        finding.code, "fails", finding.message, detail=finding.detail, spark=finding.spark
    )
    place = finding.place or table.location
    return Judgement(table.name, "fails", (change,), batch=standing.next_batch, place=place)


# -- against another revision ----------------------------------------------------------------------


def plans_against(
    before: Pipeline, pipeline: Pipeline, logs: str, spark: SparkSession | None = None
) -> list[Judgement]:
    """What the pipeline means to tables that ran as another one has them; no checkpoint is read."""
    spark = spark or open_spark(pipeline, logs=logs, quick=True)
    confs = spark_session.all_confs(pipeline.spark, logs=logs)
    return [_compared(before, pipeline, table, spark, confs) for table in pipeline.tables]


def _compared(
    before: Pipeline,
    pipeline: Pipeline,
    table: Table,
    spark: SparkSession,
    confs: Mapping[str, str],
) -> Judgement:
    then = before.table(table.name)
    place = table.query.location or table.location
    if then is None:
        return Judgement(table.name, "same", new=True, place=place)
    try:
        was = _analysed(before, then, spark, confs, None)
        now = _analysed(pipeline, table, spark, confs, was.built.named)
    except EvertableError as e:
        return _not_analysed(table, e, Standing())
    old, new = manifest_of(before, then, was), manifest_of(pipeline, table, now)
    standing = Standing("", 0, 0, old.named, keeps_state=bool(old.shape and old.shape.operators))
    if old.digest == new.digest:
        return Judgement(table.name, "same", batch=0, place=place)
    dry = restart_after(was.frame, then.output_mode, now.frame, table.output_mode)
    return judge(Edit(old, new, standing, dry), place)
