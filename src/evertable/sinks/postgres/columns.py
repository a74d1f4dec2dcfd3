"""Spark's types in Postgres: how each is sent, what a table of ours gets, what yours may have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evertable.sinks.versions import DELETED, is_window

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the target."""

    name: str
    source: str  # the top-level column of the rows it is from
    field: str | None  # for `w_start`: the field of the struct
    sent: str  # the type in which rows arrive
    made: str  # the type in a table that we make

    @property
    def as_json(self) -> bool:
        return self.made == "jsonb"


@dataclass(frozen=True, slots=True)
class Existing:
    """A column of a table that is there."""

    name: str
    type: str  # as Postgres writes it: numeric(10,2)
    base: str  # its name in pg_type: numeric
    is_enum: bool = False
    required: bool = False  # NOT NULL without a default


# What is sent -> the types in pg_type that take it, without loss.
_TAKEN_BY = {
    "boolean": {"bool"},
    "smallint": {"int2", "int4", "int8", "numeric"},
    "integer": {"int4", "int8", "numeric"},
    "bigint": {"int8", "numeric"},
    "real": {"float4", "float8"},
    "double precision": {"float8"},
    "numeric": {"numeric"},
    "text": {"text", "varchar", "bpchar", "citext", "json", "jsonb", "uuid", "xml", "inet"},
    "bytea": {"bytea"},
    "date": {"date"},
    "timestamptz": {"timestamptz"},
    "timestamp": {"timestamp"},
}
# What is sent -> the types whose binary form is the very same, so that nothing has to be cast.
_SAME_FORM = {
    "boolean": {"bool"},
    "smallint": {"int2"},
    "integer": {"int4"},
    "bigint": {"int8"},
    "real": {"float4"},
    "double precision": {"float8"},
    "numeric": {"numeric"},
    "text": {"text", "varchar", "bpchar", "json"},
    "bytea": {"bytea"},
    "date": {"date"},
    "timestamptz": {"timestamptz"},
    "timestamp": {"timestamp"},
}
_SENT = {
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "boolean": "boolean",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "char": "text",
    "varchar": "text",
    "void": "text",
    "binary": "bytea",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "date": "date",
}


def columns_of(schema: StructType) -> list[Column]:
    """The columns that rows of this schema become; a window becomes its start and end."""
    result: list[Column] = []
    for field in schema.fields:
        if is_window(field.dataType):
            sent, made = _types(field.dataType.fields[0].dataType)  # type: ignore[attr-defined]
            result += [
                Column(f"{field.name}_{part}", field.name, part, sent, made)
                for part in ("start", "end")
            ]
        else:
            result.append(Column(field.name, field.name, None, *_types(field.dataType)))
    return result


def key_columns(columns: Sequence[Column], keys: Sequence[str]) -> list[str]:
    """The columns that make up a key; a window is both of its ends."""
    return [c.name for key in keys for c in columns if key in (c.source, c.name)]


def columns_problem(schema: StructType) -> str | None:
    """Why Postgres would not keep rows of this schema."""
    try:
        names = [c.name for c in columns_of(schema)]
    except ValueError as e:
        return str(e)
    twice = next((n for n in names if names.count(n) > 1), None)
    long = next((n for n in names if len(n.encode()) > 63), None)
    if long:
        return f'column "{long}" has a name longer than 63 bytes'
    return f'column "{twice}" is there twice' if twice else None


def projected(rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Rows with exactly these columns: windows taken apart, nested values as JSON."""
    if not any(c.field or c.as_json for c in columns):
        return rows
    from pyspark.sql import functions as F

    def column(c: Column) -> SparkColumn:
        source = rows[_ticked(c.source)]
        if c.field:
            return source[c.field].alias(c.name)
        return (F.to_json(source) if c.as_json else source).alias(c.name)

    more = [rows[DELETED]] if DELETED in rows.columns else []
    return rows.select(*[column(c) for c in columns], *more)


def fits(column: Column, there: Existing) -> bool:
    """Whether every value of a column finds a place in one that is there."""
    if column.as_json:
        return there.base in ("json", "jsonb", "text")
    if column.sent == "text" and there.is_enum:
        return True
    if there.base not in _TAKEN_BY[column.sent]:
        return False
    if re.search(r"time\w*\([0-5]\)", there.type):  # would round
        return False
    room = re.fullmatch(r"numeric\((\d+),(\d+)\)", there.type)
    if room is None:
        return True
    wanted = re.fullmatch(r"numeric\((\d+),(\d+)\)", column.made)
    digits, scale = map(int, wanted.groups()) if wanted else (_DIGITS[column.sent], 0)
    have, have_scale = map(int, room.groups())
    return have_scale >= scale and have - have_scale >= digits - scale


_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}


def same_form(column: Column, there: Existing) -> bool:
    """Whether rows can be copied into a column as they are sent."""
    return there.base in _SAME_FORM[column.sent]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _types(data_type: DataType) -> tuple[str, str]:
    name = data_type.typeName()
    if name.startswith("decimal"):
        precision, scale = data_type.precision, data_type.scale  # type: ignore[attr-defined]
        return "numeric", f"numeric({precision},{scale})"
    if name in ("struct", "array", "map", "variant"):
        return "text", "jsonb"
    if name not in _SENT:
        raise ValueError(f"a column of type {data_type.simpleString()}: cast it to text first")
    return _SENT[name], _SENT[name]


def _ticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
