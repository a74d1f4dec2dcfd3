"""A static table whose rows a test gives."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evertable.model.pipeline import Static
from evertable.sources.registry import SOURCES
from evertable.spark import frames
from evertable.spark.schemas import SchemaStore
from evertable.testing.values import table_of, typed

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from evertable.testing.under_test import PipelineUnderTest


def played(
    pipeline: PipelineUnderTest, static: Static, rows: Iterable[Mapping[str, Any]]
) -> Static:
    """The same static, read from a file with these rows."""
    import pyarrow.parquet as pq

    schema = _columns(pipeline, static)
    checked = typed(rows, schema, pipeline.day, f'static "{static.name}"')
    file = os.path.join(pipeline.storage.folder, f"static-{static.name}.parquet")
    pq.write_table(table_of(checked, schema), file)
    return replace(
        static, format="parquet", options={"path": file}, unchecked_options={}, schema=None
    )


def _columns(pipeline: PipelineUnderTest, static: Static) -> StructType:
    if static.schema:
        from pyspark.sql.types import _parse_datatype_string

        return _parse_datatype_string(static.schema)  # type: ignore[return-value]
    schemas = SchemaStore(pipeline.storage.schemas, keep=False)
    session = pipeline.spark.newSession()
    built = frames.Frames(session, pipeline.model, SOURCES, schemas, named=False)
    return built.input(static.name).schema
