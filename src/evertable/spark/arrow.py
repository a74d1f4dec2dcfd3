"""The rows of a batch on the driver, as Arrow (private API, 4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def collected(rows: DataFrame) -> pa.Table:
    """All rows, computed once. `toArrow` does the same and first asks the JVM for confs and schema,
    which the batches have already: 1.4 of 24 ms of a small batch."""
    import pyarrow as pa

    frame: Any = rows
    table = pa.Table.from_batches(frame._collect_as_arrow(empty_list_if_zero_records=False))
    schema = pa.schema([_in_utc(field) for field in table.schema])
    return table if table.schema == schema else table.cast(schema)


def _in_utc(field: pa.Field) -> pa.Field:
    """Spark gives times in the zone of its session; the moments are the same."""
    import pyarrow as pa

    zone = getattr(field.type, "tz", None)
    return field if zone in (None, "UTC") else field.with_type(pa.timestamp("us", "UTC"))
