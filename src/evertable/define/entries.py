"""One entry of a pipeline, as written, to a value of the model. Both front doors end here.

An entry is a mapping of keys as in the YAML file. What is short for something longer is written
out, then the model checks it; every problem becomes a finding with the line of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from evertable.define.schemas import SchemaProblem, avro_problem, schema_text
from evertable.errors import Finding
from evertable.location import Location
from evertable.model.names import did_you_mean
from evertable.model.pipeline import (
    Decode,
    Pipeline,
    Query,
    SinkSpec,
    Static,
    Stream,
    Table,
    Trigger,
    View,
)

Path = tuple[str | int, ...]
Places = Callable[[Path], Location]
Entry = Mapping[str, object]
Value = TypeVar("Value", Stream, Static, View, Table, Pipeline)

_KINDS: dict[type, str] = {
    Stream: "stream",
    Static: "static",
    View: "view",
    Table: "table",
    Pipeline: "pipeline",
}
_INTERNAL = {
    "name",
    "location",
    "function",
    "root",
    "option_lines",
}  # fields that are no keys of the file
_TRIGGERS = ("default", "processing_time", "available_now", "once", "continuous", "real_time")


def stream(
    name: str, entry: Entry, places: Places, root: str, function: type | None = None
) -> tuple[Stream | None, list[Finding]]:
    keys = _options_of(entry, places)
    findings = _read_schemas(keys, f'stream "{name}"', places, root)
    return (None, findings) if findings else _make(Stream, name, keys, places, function)


def static(
    name: str, entry: Entry, places: Places, root: str, function: type | None = None
) -> tuple[Static | None, list[Finding]]:
    keys = _options_of(entry, places)
    findings = _read_schemas(keys, f'static "{name}"', places, root)
    return (None, findings) if findings else _make(Static, name, keys, places, function)


def view(name: str, query: Query, places: Places) -> tuple[View | None, list[Finding]]:
    return _make(View, name, {"query": query}, places)


def table(
    name: str, entry: Entry, query: Query, places: Places
) -> tuple[Table | None, list[Finding]]:
    keys = dict(entry)
    keys["query"] = query
    if "trigger" in keys:
        keys["trigger"] = _trigger(keys["trigger"])
        if keys["trigger"] is None:
            return None, [_no_trigger(name, entry["trigger"], places)]
    if "sink" in keys:
        keys["sinks"] = _sinks(keys.pop("sink"), places)
    return _make(Table, name, keys, places)


def pipeline(keys: Entry, places: Places) -> tuple[Pipeline | None, list[Finding]]:
    """With findings it lacks the keys of its own, so that its entries can be judged all the same"""
    named = {k: v for k, v in keys.items() if k != "name"}
    value, findings = _make(Pipeline, str(keys.get("name")), named, places)
    if value is None:
        entries = {k: v for k, v in named.items() if k not in ("storage", "spark")}
        value, _ = _make(Pipeline, "unnamed", entries, places)
    return value, findings


def _read_schemas(keys: dict[str, object], what: str, places: Places, root: str) -> list[Finding]:
    """Write out the schemas of an entry that stand in files or in classes."""
    findings: list[Finding] = []

    def read(given: object, path: Path, *, avro: bool = False) -> object:
        try:
            text = schema_text(given, root)
            problem = avro_problem(text) if avro else None
            if problem:
                raise SchemaProblem(problem)
        except SchemaProblem as e:
            place = places(path)
            findings.append(Finding("SCHEMA_INVALID", f"the schema of {what}: {e}", place))
            return None
        return text

    if keys.get("schema") is not None:
        keys["schema"] = read(keys["schema"], ("schema",))
    decode = keys.get("decode")
    if isinstance(decode, Decode):
        decode = {f.name: getattr(decode, f.name) for f in fields(decode)}
    if isinstance(decode, Mapping):
        made = dict(decode)
        avro = made.get("format") == "avro"
        if made.get("schema") is not None:
            made["schema"] = read(made["schema"], ("decode", "schema"), avro=avro)
        ids = made.get("registry_ids")
        if isinstance(ids, Mapping):
            made["registry_ids"] = {
                n: given and read(given, ("decode", "registry_ids", n), avro=True)
                for n, given in ids.items()
            }
        keys["decode"] = made
    return findings


def _options_of(entry: Entry, places: Places) -> dict[str, object]:
    """`path: x` is short for `options: {path: x}`; each option remembers its line."""
    keys = dict(entry)
    if "path" in keys:
        options = keys.get("options") or {}
        if isinstance(options, Mapping):
            keys["options"] = {"path": keys.pop("path"), **options}
    keys["option_lines"] = _lines(keys.get("options"), ("options",), places)
    return keys


def _lines(options: object, path: Path, places: Places) -> dict[str, int]:
    names = options if isinstance(options, Mapping) else {}
    return {str(name): places((*path, str(name))).line for name in names}


def _trigger(value: object) -> object:
    """`available_now`, `{processing_time: 5 seconds}`: one key, what it needs as its value.

    None where it is no trigger.
    """
    if isinstance(value, str):
        return {"kind": value} if value in _TRIGGERS else None
    if not isinstance(value, Mapping):
        return value if isinstance(value, Trigger) else None
    kind, interval = next(iter(value.items()), (None, None))
    if len(value) != 1 or kind not in _TRIGGERS:
        return None
    return {"kind": kind, **({"interval": interval} if interval is not True else {})}


def _no_trigger(name: str, value: object, places: Places) -> Finding:
    said = next(iter(value), value) if isinstance(value, Mapping) else value
    return Finding(
        "VALUE_INVALID",
        f'"{said}" is no trigger for table "{name}"',
        places(("trigger",)),
        hint=did_you_mean(str(said), _TRIGGERS)
        or "one of default, {processing_time: 5 seconds}, available_now, once, "
        "{continuous: 1 second}, {real_time: 5 minutes}",
    )


def _sinks(value: object, places: Places) -> object:
    """One sink, or a list of them."""
    if not isinstance(value, list | tuple):
        return (_sink(value, ("sink",), places),)
    return tuple(_sink(one, ("sink", i), places) for i, one in enumerate(value))


def _sink(value: object, path: Path, places: Places) -> object:
    """`{format: parquet, path: out/}`: what is no key of ours is an option of the sink."""
    place = places(path)
    if isinstance(value, str):
        return {"format": value, "location": place}
    if not isinstance(value, Mapping):
        return value
    ours = {"format", "options", "unchecked_options", "function", "delivery", "ledger"}
    options = value.get("options", {})
    if not isinstance(options, Mapping):
        return value
    extra = {k: v for k, v in value.items() if k not in ours}
    all_options = {**extra, **options}
    return {
        **{k: v for k, v in value.items() if k in ours},
        "options": all_options,
        "option_lines": _lines(all_options, (*path, "options"), places),
        "location": place,
    }


def _make(
    kind: type[Value], name: str, keys: Entry, places: Places, function: type | None = None
) -> tuple[Value | None, list[Finding]]:
    refused = [
        Finding("KEY_UNKNOWN", f'{_KINDS[kind]} "{name}" has no key "{key}"', places((key,)))
        for key in keys
        if key in _INTERNAL - {"option_lines"} and kind is not Pipeline
    ]
    if refused:
        return None, refused
    if function is not None:
        keys = {**keys, "function": function}
    try:
        value = TypeAdapter(kind).validate_python({**keys, "name": name, "location": places(())})
    except ValidationError as e:
        return None, [_finding(kind, name, error, places, keys) for error in e.errors()]
    return value, []


def _as_written(path: Path, keys: Entry) -> Path:
    """`sinks.0.format` of the model is `sink.format` of the file where there is one sink."""
    if path[:1] != ("sinks",):
        return path
    sinks = keys["sinks"]
    several = isinstance(sinks, tuple) and len(sinks) > 1
    return ("sink", *(path[1:] if several else path[2:]))


def _finding(kind: type, name: str, error: Any, places: Places, keys: Entry) -> Finding:
    in_model: Path = tuple(error["loc"])
    path = _as_written(in_model, keys)
    what = f'{_KINDS[kind]} "{name}"'
    inner = ".".join(str(p) for p in path[:-1])
    where = f"{inner} of {what}" if inner else what
    key = str(path[-1]) if path else ""
    place = places(path)
    match error["type"]:
        case "missing":
            return Finding("KEY_MISSING", f'{where} has no "{key}"', place)
        case "unexpected_keyword_argument" | "extra_forbidden":
            known = _keys_at(kind, in_model[:-1])
            return Finding(
                "KEY_UNKNOWN",
                f'{where} has no key "{key}"',
                place,
                hint=did_you_mean(key, known) or f"known keys: {', '.join(sorted(known))}",
            )
        case "literal_error":
            expected = error["ctx"]["expected"].replace("'", "")
            return Finding(
                "VALUE_INVALID",
                f'"{key}" of {where} cannot be "{error["input"]}"',
                place,
                hint=did_you_mean(str(error["input"]), expected.replace(" or ", ", ").split(", "))
                or f"one of {expected}",
            )
        case "value_error":
            message = str(error["ctx"]["error"])
            return Finding("VALUE_INVALID", f'"{key}" of {where}: {message}', place)
        case _:
            message = str(error["msg"])
            return Finding(
                "VALUE_INVALID",
                f'"{key}" of {where}: {message[:1].lower()}{message[1:]}',
                place,
            )


def _keys_at(kind: type, path: Sequence[str | int]) -> set[str]:
    """The keys that may stand at a place of an entry."""
    schema = TypeAdapter(kind).json_schema(mode="validation")
    definitions = schema.get("$defs", {})
    node: Any = schema
    for step in path:
        node = (
            node.get("items", {})
            if isinstance(step, int)
            else node.get("properties", {}).get(step, {})
        )
        for choice in node.get("anyOf", [node]):
            if "$ref" in choice:
                node = definitions[choice["$ref"].rsplit("/", 1)[-1]]
                break
    keys = set(node.get("properties", {})) - _INTERNAL
    if kind in (Stream, Static) and not path:
        keys.add("path")
    if kind is Table and not path:
        keys = keys - {"sinks"} | {"sink"}
    return keys


__all__ = ["Entry", "Places", "SinkSpec", "pipeline", "static", "stream", "table", "view"]
