"""The JSON Schema of the YAML file, for editors: made from the model, never written by hand."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from evertable.model.names import PATTERN
from evertable.model.pipeline import Static, Stream, Table

_TEXT = {"type": "string"}
_OPTION = {"type": ["string", "number", "boolean"]}
_INTERVALS = {
    "processing_time": "5 seconds",
    "continuous": "1 second",
    "real_time": "5 minutes",
}
_QUERY = {
    "description": "SQL, a file of SQL, or a Python function over streams, statics and views",
    "anyOf": [
        _TEXT,
        {
            "type": "object",
            "properties": {"file": _TEXT},
            "required": ["file"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"python": {"type": "string", "pattern": r"^.+:\w+$"}},
            "required": ["python"],
            "additionalProperties": False,
        },
    ],
}


def json_schema() -> dict[str, Any]:
    """What `evertable schema` prints."""
    definitions: dict[str, Any] = {}
    stream = _entry(Stream, definitions)
    static = _entry(Static, definitions)
    table = _entry(Table, definitions)
    for entry in (stream, static):
        entry["properties"]["path"] = {"type": "string", "description": "short for options.path"}
    table["properties"]["query"] = _QUERY
    table["properties"]["trigger"] = _trigger()
    table["properties"].pop("sinks")
    table["properties"]["sink"] = _sinks()
    for unused in ("Query", "Trigger", "SinkSpec"):
        definitions.pop(unused, None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Evertable pipeline",
        "type": "object",
        "required": ["tables"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "pattern": PATTERN},
            "storage": {
                "type": "string",
                "description": "folder for checkpoints, embedded tables and logs",
                "default": "./.evertable",
            },
            "spark": {
                "type": "object",
                "description": "Spark confs by their full names; master is short for spark.master",
                "additionalProperties": _OPTION,
            },
            "parameters": {"type": "object", "additionalProperties": _OPTION},
            "streams": _named(stream),
            "statics": _named(static),
            "views": _named(_QUERY),
            "tables": _named(table),
        },
        "$defs": definitions,
    }


def _named(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "propertyNames": {"pattern": PATTERN},
        "additionalProperties": entry,
    }


def _entry(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    schema = TypeAdapter(kind).json_schema(mode="validation")
    definitions.update(schema.pop("$defs", {}))
    schema["properties"].pop("name")
    schema["required"] = [key for key in schema["required"] if key != "name"]
    schema["description"] = (kind.__doc__ or "").partition("\n")[0]
    return schema


def _trigger() -> dict[str, Any]:
    return {
        "description": "when the next batch begins",
        "anyOf": [
            {"enum": ["default", "available_now", "once"]},
            *(
                {
                    "type": "object",
                    "properties": {kind: {"type": "string", "examples": [example]}},
                    "required": [kind],
                    "additionalProperties": False,
                }
                for kind, example in _INTERVALS.items()
            ),
        ],
    }


def _sinks() -> dict[str, Any]:
    one: dict[str, Any] = {
        "anyOf": [
            _TEXT,
            {
                "type": "object",
                "properties": {
                    "format": _TEXT,
                    "options": {"type": "object", "additionalProperties": _OPTION},
                    "unchecked_options": {"type": "object", "additionalProperties": _OPTION},
                    "delivery": {"enum": ["at_least_once", "exactly_once"]},
                    "ledger": {"enum": ["embedded"]},
                },
                "required": ["format"],
                "additionalProperties": _OPTION,
            },
        ]
    }
    return {
        "description": "where the rows go; without one, an embedded table",
        "anyOf": [*one["anyOf"], {"type": "array", "items": one, "minItems": 1}],
    }
