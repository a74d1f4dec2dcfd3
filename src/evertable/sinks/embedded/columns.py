"""Spark's types in SQLite: how each is declared, written, and read back as what it was.

SQLite keeps the declared type's name but knows few types, so the name carries the meaning:
`DECIMAL_TEXT(20,2)` has text affinity (it contains TEXT) and comes back as an exact Decimal.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evertable.sinks.versions import is_window

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

UTC = dt.UTC


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the SQLite table."""

    name: str
    declared: str
    source: str  # the top-level column of the rows it is from
    field: str | None = None  # for `w_start`: the field of the struct

    @property
    def kind(self) -> str:
        """The declared type without what is in brackets."""
        return self.declared.partition("(")[0]

    @property
    def sql(self) -> str:
        collation = f" COLLATE {COLLATION}" if self.kind == "DECIMAL_TEXT" else ""
        return f"{quoted(self.name)} {self.declared}{collation}"


# Exact text would be compared as text, "9" above "100", and no one would notice. With a collation
# of ours numbers compare as numbers; a client without it gets an error instead of a wrong answer.
COLLATION = "evertable_decimal"


def register_collation(connection: sqlite3.Connection) -> None:
    """Let a connection compare decimals."""
    connection.create_collation(COLLATION, _compare)


def _compare(left: str, right: str) -> int:
    try:
        a, b = decimal.Decimal(left), decimal.Decimal(right)
    except decimal.InvalidOperation:
        return (left > right) - (left < right)
    return (a > b) - (a < b)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def columns_of(schema: StructType) -> list[Column]:
    """The columns that rows of this schema become; a window becomes its start and end."""
    result: list[Column] = []
    for field in schema.fields:
        if is_window(field.dataType):
            kind = _declared(field.dataType.fields[0].dataType)  # type: ignore[attr-defined]
            result += [
                Column(f"{field.name}_{part}", kind, field.name, part) for part in ("start", "end")
            ]
        else:
            result.append(Column(field.name, _declared(field.dataType), field.name))
    return result


def key_columns(columns: Sequence[Column], keys: Sequence[str]) -> list[str]:
    """The SQLite columns that make up a key; a window is both of its ends."""
    return [c.name for key in keys for c in columns if key in (c.source, c.name)]


def _declared(data_type: DataType) -> str:
    name = data_type.typeName()
    known = {
        "byte": "TINYINT",
        "short": "SMALLINT",
        "integer": "INTEGER",
        "long": "BIGINT",
        "boolean": "BOOLEAN_INT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "TEXT",
        "char": "TEXT",
        "varchar": "TEXT",
        "binary": "BLOB",
        "timestamp": "TIMESTAMP_TEXT",
        "timestamp_ntz": "TIMESTAMP_NTZ_TEXT",
        "date": "DATE_TEXT",
        "void": "TEXT",
        "struct": "JSON_TEXT",
        "array": "JSON_TEXT",
        "map": "JSON_TEXT",
        "variant": "JSON_TEXT",
    }
    if name.startswith("decimal"):
        return f"DECIMAL_TEXT({data_type.precision},{data_type.scale})"  # type: ignore[attr-defined]
    if name not in known:
        raise ValueError(f"a column of type {data_type.simpleString()}: cast it to text first")
    return known[name]


def sqlite_values(table: pa.Table, columns: Sequence[Column]) -> list[Sequence[Any]]:
    """The values of a batch, a sequence for each column."""
    return [_values(table, column) for column in columns]


def _values(table: pa.Table, column: Column) -> Sequence[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    array = table.column(column.source)
    if column.field is not None:
        array = pc.struct_field(array, column.field)
    match column.kind:
        case "TIMESTAMP_TEXT" | "TIMESTAMP_NTZ_TEXT":
            text = array.cast(pa.timestamp("us")).cast(pa.string())
            # Without needless zeros: what is shown can be typed, and text sorts as time does.
            return _list(pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), "."))
        case "DATE_TEXT" | "DECIMAL_TEXT":
            return _list(array.cast(pa.string()))
        case "JSON_TEXT":
            return [None if v is None else json_text(v) for v in array.to_pylist()]
        case "FLOAT" | "DOUBLE":
            # SQLite knows no NaN and would make it NULL, which is another group.
            return ["NaN" if v is not None and v != v else v for v in array.to_pylist()]
        case "TEXT":
            return _texts(array)
        case _:
            return _list(array)


def _list(array: Any) -> Sequence[Any]:
    values: Sequence[Any] = array.to_pylist()
    return values


def _texts(array: Any) -> Sequence[Any]:
    """Spark lets bytes pass as text that are none; they become the replacement character."""
    import pyarrow as pa

    try:
        return _list(array)
    except UnicodeDecodeError:
        raw = array.cast(pa.large_binary()).to_pylist()
        return [None if v is None else v.decode(errors="replace") for v in raw]


def json_text(value: object) -> str:
    """Structs, arrays and maps as JSON."""
    return json.dumps(_plain(value), ensure_ascii=False, default=str, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        # Arrow gives a map as a list of (key, value)
        if value and all(isinstance(v, tuple) and len(v) == 2 for v in value):
            return {str(k): _plain(v) for k, v in value}
        return [_plain(v) for v in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    return value


_FROM_TEXT: dict[str, Callable[[bytes], object]] = {
    "BOOLEAN_INT": lambda b: b == b"1",
    "TIMESTAMP_TEXT": lambda b: dt.datetime.fromisoformat(b.decode()).replace(tzinfo=UTC),
    "TIMESTAMP_NTZ_TEXT": lambda b: dt.datetime.fromisoformat(b.decode()),
    "DATE_TEXT": lambda b: dt.date.fromisoformat(b.decode()),
    "DECIMAL_TEXT": lambda b: decimal.Decimal(b.decode()),
    "JSON_TEXT": json.loads,
}


def register_converters() -> None:
    """Columns read with PARSE_DECLTYPES come back as what they were in Spark."""
    for declared, convert in _FROM_TEXT.items():
        sqlite3.register_converter(declared, _or_text(convert))


def _or_text(convert: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """A value Python has no type for (the year 10000) stays text."""

    def safe(raw: bytes) -> object:
        try:
            return convert(raw)
        except ValueError:
            return raw.decode(errors="replace")

    return safe


def rows_of(values: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    return zip(*values, strict=True)
