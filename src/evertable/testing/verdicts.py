"""What an edit means to a table under test, by the same rules as `evertable plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from evertable.model.pipeline import Pipeline
from evertable.model.storage import Storage
from evertable.plan.changes import Verdict
from evertable.plan.edit import Edit
from evertable.plan.judge import judge
from evertable.run.analysis import Analysed, analyse_table, table_session
from evertable.run.manifests import manifest_of
from evertable.spark.checkpoint import Checkpoint
from evertable.spark.frames import Opened
from evertable.spark.restart import restart
from evertable.spark.schemas import SchemaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verdict_of(
    spark: SparkSession,
    confs: Mapping[str, str],
    before: Pipeline,
    after: Pipeline,
    table: str,
    opened: Opened,
) -> Verdict:
    """Of a table that both pipelines have, on the checkpoint that the first one has left."""
    storage = Storage.of(before)
    checkpoint = Checkpoint(storage.checkpoint(table))
    schemas = SchemaStore(storage.schemas, keep=False)

    def analysed(pipeline: Pipeline) -> Analysed:
        definition = pipeline.table(table)
        assert definition is not None
        session = table_session(spark, confs, definition)
        return analyse_table(
            session, pipeline, definition, schemas, named=checkpoint.sources_named(),
            opened=opened, shaped=True,
        )  # fmt: skip

    was, now = analysed(before), analysed(after)
    then, new = before.table(table), after.table(table)
    assert then is not None
    assert new is not None
    old, made = manifest_of(before, then, was), manifest_of(after, new, now)
    if old.digest == made.digest:
        return "same"
    standing = checkpoint.standing()
    dry = restart(now.frame, new.output_mode, checkpoint.folder, standing)
    return judge(Edit(old, made, standing, dry)).verdict
