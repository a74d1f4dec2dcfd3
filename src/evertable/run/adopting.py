"""A checkpoint that another program has made, for a table of ours."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from evertable.errors import Finding, Refused
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import Pipeline, Table
from evertable.model.storage import Storage
from evertable.plan.changes import Judgement
from evertable.run.analysis import analyse_table, table_session
from evertable.run.opening import open_spark
from evertable.run.planning import Planning, refusal
from evertable.run.targets import sink_options
from evertable.sinks.registry import open_sink
from evertable.spark import session as spark_session
from evertable.spark.checkpoint import Checkpoint
from evertable.spark.schemas import SchemaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def adopt(
    pipeline: Pipeline, table: Table, folder: str, spark: SparkSession | None = None
) -> Judgement:
    """Judge a copy of the checkpoint, and tell the sinks where it stands. Raises Refused."""
    checkpoint = Checkpoint(folder)
    standing = checkpoint.standing()
    if standing.last_offset < 0 or not standing.query_id:
        raise Refused(
            Finding("CHECKPOINT_UNKNOWN", "the checkpoint has no batch to go on from", None)
        )
    with tempfile.TemporaryDirectory(prefix="evertable-adopt-") as logs:
        spark = spark or open_spark(pipeline, logs=logs, quick=True)
        confs = spark_session.all_confs(pipeline.spark, logs=logs)
        session = table_session(spark, confs, table)
        schemas = SchemaStore(Storage.of(pipeline).schemas)
        analysed = analyse_table(
            session, pipeline, table, schemas, named=checkpoint.sources_named(), shaped=True
        )
        planning = Planning(pipeline, table)
        planning.checkpoint = checkpoint
        judgement, _ = planning.judged(analysed)
        if not judgement.goes_on:
            raise Refused(refusal(judgement))
        for spec in table.sinks:
            sink = open_sink(
                session, pipeline, table, spec, sink_options(pipeline, table, spec),
                lambda name, batch, rows: None,
            )  # fmt: skip
            if sink is None or not sink.capabilities.ledger:
                continue
            claim = sink.open(table, standing.query_id)
            try:
                claim.prepare(analysed.frame.schema, table.output_mode, analysed.keys)
                last = standing.last_commit
                digest = checkpoint.offsets_digest(last) if last >= 0 else None
                if last >= 0 and (claim.last is None or claim.last.batch < last):
                    nothing = analysed.frame.sparkSession.createDataFrame([], analysed.frame.schema)
                    entry = LedgerEntry(standing.query_id, last, digest or "")
                    claim.write(nothing, entry, table.output_mode, analysed.keys, lambda: None)
            finally:
                claim.close()
    return judgement
