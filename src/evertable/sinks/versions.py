"""Rows that replace or remove others: which of them says what, and by which time they grow old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evertable.model.pipeline import Retain, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

DELETED = "_evertable_deleted"
_WATERMARK = "spark.watermarkDelayMs"  # what Spark notes on a column that has one


def with_deletions(rows: DataFrame, table: Table) -> DataFrame:
    """The rows, and which of them remove the row with their key."""
    if table.delete_when is None:
        return rows
    from pyspark.sql import functions as F

    return rows.withColumn(DELETED, F.expr(f"coalesce(({table.delete_when}), false)"))


def is_window(data_type: DataType) -> bool:
    fields = getattr(data_type, "fields", [])
    return [f.name for f in fields] == ["start", "end"] and all(
        f.dataType.typeName().startswith("timestamp") for f in fields
    )


def time_of(schema: StructType, retain: Retain) -> StructField | str:
    """The column by which rows grow old; where it cannot be told, why not."""
    times = [f for f in schema.fields if _is_time(f.dataType)]
    names = ", ".join(f.name for f in times)
    if retain.by is not None:
        found = [f for f in times if f.name == retain.by]
        return found[0] if found else f'"{retain.by}" is no time column of it (those are: {names})'
    windows = [f for f in times if is_window(f.dataType)]
    marked = [f for f in times if _WATERMARK in f.metadata]
    for choice in (windows, marked, times):
        if len(choice) == 1:
            return choice[0]
    if not times:
        return "it has no time column"
    return f"it has several time columns ({names}): say which, `retain: {{age: …, by: …}}`"


def _is_time(data_type: DataType) -> bool:
    return data_type.typeName() in ("timestamp", "timestamp_ntz", "date") or is_window(data_type)
