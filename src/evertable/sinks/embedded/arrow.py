"""An embedded table as Arrow, with the types its columns had in Spark; no JVM."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any

from evertable.sinks.embedded.columns import quoted, register_collation
from evertable.sinks.embedded.ledger import escaped

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 50_000


def to_arrow(file: str, table: str) -> pa.Table:
    """All rows, as of one moment."""
    import pyarrow as pa

    connection = sqlite3.connect(f"file:{escaped(file)}?mode=ro", uri=True, isolation_level=None)
    try:
        register_collation(connection)
        connection.execute("BEGIN")
        columns = connection.execute(
            "SELECT name, type FROM pragma_table_info(?)", (table,)
        ).fetchall()
        names = ", ".join(quoted(name) for name, _ in columns)
        cursor = connection.execute(f"SELECT {names} FROM {quoted(table)}")
        schema = pa.schema([(name, _type(declared)) for name, declared in columns])
        batches = []
        while rows := cursor.fetchmany(_AT_ONCE):
            arrays = [
                _array(list(values), field.type)
                for values, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        return pa.Table.from_batches(batches, schema=schema)
    finally:
        connection.close()


def _type(declared: str) -> pa.DataType:
    import pyarrow as pa

    kind, _, arguments = declared.partition("(")
    if kind == "DECIMAL_TEXT":
        precision, scale = map(int, re.findall(r"\d+", arguments))
        return pa.decimal128(precision, scale)
    return {
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "BOOLEAN_INT": pa.bool_(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "BLOB": pa.binary(),
        "TIMESTAMP_TEXT": pa.timestamp("us", "UTC"),
        "TIMESTAMP_NTZ_TEXT": pa.timestamp("us"),
        "DATE_TEXT": pa.date32(),
    }.get(kind, pa.string())


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return pa.array([None if v is None else bool(v) for v in values], kind)
    if pa.types.is_floating(kind):
        return pa.array([float(v) if isinstance(v, str) else v for v in values], kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.string()).cast(pa.timestamp("us")).cast(kind)
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
