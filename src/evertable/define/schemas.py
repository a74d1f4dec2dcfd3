"""Schemas however they are given (DDL, a file, a class of the user's), as DDL or as Avro's JSON.

No Spark is needed for it: a schema that cannot be read is a mistake of the file, said at once.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import os
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_OF_PYTHON: dict[type, str] = {
    str: "STRING",
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    bytes: "BINARY",
    dt.datetime: "TIMESTAMP",
    dt.date: "DATE",
    dt.timedelta: "INTERVAL DAY TO SECOND",
    decimal.Decimal: "DECIMAL(38,18)",
    Any: "VARIANT",
}
_OF_SPARK = {
    "long": "BIGINT",
    "integer": "INT",
    "short": "SMALLINT",
    "byte": "TINYINT",
}


class SchemaProblem(ValueError):
    """Why something is no schema."""


def schema_text(given: object, root: str) -> str:
    """DDL, or the JSON of an Avro schema; `given` is one, or a file, or a class with fields."""
    if isinstance(given, str):
        name = given.strip()
        if name.endswith((".json", ".avsc")) and "\n" not in name:
            return _of_file(name, root)
        return given
    if isinstance(given, type):
        return ddl_of_class(given)
    raise SchemaProblem(f"{type(given).__name__} is no schema")


def ddl_of_class(given: type) -> str:
    """The columns of a dataclass or a pydantic model.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Click:
    ...     ad: str
    ...     tags: list[str]
    ...     cost: float | None = None
    >>> ddl_of_class(Click)
    'ad STRING, tags ARRAY<STRING>, cost DOUBLE'
    """
    return ", ".join(f"{_quoted(name)} {_type(kind)}" for name, kind in _fields(given))


def ddl_of_json(value: object) -> str:
    """The columns of what `df.schema.json()` gives.

    >>> ddl_of_json({"type": "struct", "fields": [{"name": "n", "type": "long"}]})
    'n BIGINT'
    """
    if not isinstance(value, Mapping) or value.get("type") != "struct":
        raise SchemaProblem("it is not what df.schema.json() gives")
    return ", ".join(f"{_quoted(f['name'])} {_json_type(f['type'])}" for f in value["fields"])


def avro_problem(text: str) -> str | None:
    """Why a text is no Avro schema of a record."""
    try:
        value = json.loads(text)
    except ValueError:
        return "it is no JSON"
    if not isinstance(value, Mapping) or value.get("type") != "record":
        return "it is no Avro record"
    if not isinstance(value.get("fields"), Sequence) or not value.get("name"):
        return "an Avro record has a name and fields"
    return None


def _of_file(name: str, root: str) -> str:
    try:
        text = Path(os.path.join(root, os.path.expanduser(name))).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise SchemaProblem(f'"{name}" cannot be read: {reason}') from e
    try:
        value = json.loads(text)
    except ValueError as e:
        raise SchemaProblem(f'"{name}" is no JSON: {e}') from e
    if name.endswith(".avsc"):
        return json.dumps(value)
    try:
        return ddl_of_json(value)
    except (SchemaProblem, KeyError, TypeError) as e:
        raise SchemaProblem(f'"{name}" is no schema of Spark: {e}') from e


def _fields(given: type) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(given):
        hints = typing.get_type_hints(given)
        return [(field.name, hints[field.name]) for field in dataclasses.fields(given)]
    fields = getattr(given, "model_fields", None)
    if isinstance(fields, Mapping):  # a pydantic model, read by the names that its data has
        return [(f.alias or name, f.annotation) for name, f in fields.items()]
    raise SchemaProblem(f"{given.__name__} is neither a dataclass nor a pydantic model")


def _type(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        kinds = {_type(a) for a in arguments if a is not type(None)}
        if len(kinds) == 1:
            return kinds.pop()
        raise SchemaProblem(f"{kind} is several types")
    if origin is typing.Literal:
        return _type(type(arguments[0]))
    if origin in (list, tuple, set, frozenset, Sequence) and arguments:
        return f"ARRAY<{_type(arguments[0])}>"
    if origin in (dict, Mapping) and len(arguments) == 2:
        return f"MAP<{_type(arguments[0])}, {_type(arguments[1])}>"
    if kind in _OF_PYTHON:
        return _OF_PYTHON[kind]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _type(type(next(iter(kind)).value))
    if isinstance(kind, type):
        inside = ", ".join(f"{_quoted(name)}: {_type(inner)}" for name, inner in _fields(kind))
        return f"STRUCT<{inside}>"
    raise SchemaProblem(f"{kind} has no type of Spark's")


def _json_type(value: Any) -> str:
    if isinstance(value, str):
        return _OF_SPARK.get(value, value.upper())
    match value["type"]:
        case "struct":
            fields = (f"{_quoted(f['name'])}: {_json_type(f['type'])}" for f in value["fields"])
            return f"STRUCT<{', '.join(fields)}>"
        case "array":
            return f"ARRAY<{_json_type(value['elementType'])}>"
        case "map":
            return f"MAP<{_json_type(value['keyType'])}, {_json_type(value['valueType'])}>"
        case other:
            raise SchemaProblem(f'"{other}" is no type')


def _quoted(name: str) -> str:
    plain = name.replace("_", "a").isalnum() and name.isascii() and not name[0].isdigit()
    return name if plain else "`" + name.replace("`", "``") + "`"
