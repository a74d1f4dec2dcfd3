"""The manifest of a table that is about to start, and what an edit of it means."""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from evertable.model.pipeline import Pipeline, SinkSpec, Static, Stream, Table, View
from evertable.model.storage import Storage
from evertable.plan.manifest import Manifest, Source, Target
from evertable.run.analysis import Analysed
from evertable.sinks import functions
from evertable.sinks.registry import capabilities
from evertable.sources.registry import SOURCES
from evertable.spark.code_prints import print_of
from evertable.spark.secrets import redact, secrets_in, value_of
from evertable.user_code import load_function

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Options that say what is read or written; all others say how.
_READS = ("path", "subscribe", "subscribepattern", "assign", "table", "host", "port", "class")
_WRITES = ("path", "table", "topic", "url", "call", "class", "kafka.bootstrap.servers")
_CONFS = (
    "spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy", "spark.sql.shuffle.partitions",
    "spark.sql.streaming.stateStore.providerClass",
)  # fmt: skip
_SETTINGS = ("order_by", "delete_when", "retain", "partition_by", "on_schema_change")
_FILES = ("text", "csv", "json", "parquet", "orc", "xml", "avro")
_IN_CODE = ("function", "location", "option_lines", "root")  # of a model's values


def manifest_of(pipeline: Pipeline, table: Table, analysed: Analysed) -> Manifest:
    """What has to be known of a table when it is changed some day."""
    plan = analysed.seen.plan
    session = analysed.frame.sparkSession
    secrets = dict.fromkeys(_secrets(pipeline, table, analysed))
    return Manifest(
        table.name,
        mode=table.output_mode,
        trigger=" ".join(filter(None, [table.trigger.kind, table.trigger.interval])),
        policy=table.watermark_policy,
        named=analysed.built.named,
        shape=plan.shape,
        unknown=plan.unknown,
        sources=tuple(_sources(analysed)),
        statics=tuple(_source(s.name, s) for s in analysed.built.statics),
        targets=tuple(_target(pipeline, table, spec) for spec in table.sinks),
        key=analysed.keys if table.output_mode == "update" else (),
        settings=_settings(table) | _unread(pipeline, table, analysed),
        confs=_confs(session),
        secrets={name: _hashed(pipeline, value_of(name)) for name in secrets},
        versions={"spark": session.version, "python": platform.python_version()},
        definition=definition_of(pipeline, table, analysed),
    )


def _sources(analysed: Analysed) -> Iterator[Source]:
    shape = analysed.seen.plan.shape
    streams = {stream.name: stream for stream in analysed.built.streams}
    uses = analysed.built.uses
    leaves = shape.leaves if shape else tuple((use, "") for use in uses)
    for use, described in leaves:
        if described:
            yield Source(use, described, described.partition(" ")[0], {"reads": described})
        else:
            yield _source(use, streams[uses.get(use, use)])


def _source(use: str, entry: Stream | Static) -> Source:
    options = {k.lower(): v for k, v in {**entry.options, **entry.unchecked_options}.items()}
    known = SOURCES[entry.format]
    whole = entry.format == "python"  # all of its options are its own
    identity = {k: _shown(v, k) for k, v in options.items() if whole or k in _READS}
    rest = {k: _shown(v, k) for k, v in options.items() if k not in identity}
    if isinstance(entry, Stream) and entry.decode:
        rest |= {f"decode.{k}": _shown(v, k) for k, v in entry.decode.options.items()}
    schema = entry.schema or ""
    return Source(use, entry.name, entry.format, identity, rest, schema, known.replays)


def _target(pipeline: Pipeline, table: Table, spec: SinkSpec) -> Target:
    record = capabilities(spec)
    options = {k.lower(): v for k, v in {**spec.options, **spec.unchecked_options}.items()}
    identity = {k: _shown(v, k) for k, v in options.items() if k in _WRITES}
    rest = {k: _shown(v, k) for k, v in options.items() if k not in identity}
    relational = spec.format in ("embedded", "postgres")
    adds = record.adds_columns and adds_columns(table, spec)
    return Target(
        spec.format, identity, rest, spec.delivery or "",
        record.ledger or spec.ledger is not None, relational, adds,
        spec.format in _FILES, _code_of(pipeline, table, spec),
    )  # fmt: skip


def adds_columns(table: Table, spec: SinkSpec) -> bool:
    """Whether a sink takes new columns by itself: an embedded table is ours alone."""
    if table.on_schema_change is None:
        return spec.format == "embedded"
    return table.on_schema_change == "add_columns"


def _code_of(pipeline: Pipeline, table: Table, spec: SinkSpec) -> str:
    if spec.format != "python":
        return ""
    try:
        if "class" in {option.lower() for option in spec.options}:
            reference = next(v for o, v in spec.options.items() if o.lower() == "class")
            return print_of(spec.function or load_function(reference, pipeline.root, None))
        return print_of(functions.loaded(spec, pipeline.root, table.location))
    except Exception:  # what cannot be loaded is said elsewhere
        return "unseen"


def _settings(table: Table) -> dict[str, str]:
    found = {}
    for name in _SETTINGS:
        value = getattr(table, name)
        if value:
            found[name] = str(value) if not isinstance(value, tuple) else ", ".join(value)
    return found


def _unread(pipeline: Pipeline, table: Table, analysed: Analysed) -> dict[str, str]:
    """What is written, as a digest, where nobody could read what is computed."""
    if analysed.seen.plan.shape is not None:
        return {}
    views = [v.query for v in pipeline.views if v.name in analysed.built.views]
    told = []
    for query in (table.query, *views):
        function = query.function
        if function is None and query.python is not None:
            function = load_function(query.python, pipeline.root, None)
        told.append(query.sql or (print_of(function) if function is not None else ""))
    return {"text of the query": hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]}


def _confs(session: SparkSession) -> dict[str, str]:
    found = {name: session.conf.get(name, None) for name in _CONFS}
    return {name: value for name, value in found.items() if value is not None}


# -- the definition, for those who go on with it ---------------------------------------------------


def definition_of(pipeline: Pipeline, table: Table, analysed: Analysed) -> dict[str, Any]:
    """All of the pipeline that a table is made of; nothing where some of it is Python."""
    views = [v for v in pipeline.views if v.name in analysed.built.views]
    if table.query.sql is None or any(v.query.sql is None for v in views):
        return {}
    known = {s.name for s in pipeline.streams}
    streams = [s for s in analysed.built.streams if s.name in known]
    given: list[Stream | Static | SinkSpec]
    given = [*streams, *analysed.built.statics, *table.sinks]
    if any(entry.function is not None for entry in given):  # a class or a function itself
        return {}
    made = {
        "streams": [_value(s) for s in streams],
        "statics": [_value(s) for s in analysed.built.statics],
        "views": [_value(v) for v in views],
        "table": _value(table),
        "spark": {k: _shown(v, k) for k, v in pipeline.spark.items()},
    }
    return made if _complete(made) else {}


def _value(entry: Stream | Static | View | Table) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(type(entry))
    return _without(adapter.dump_python(entry, mode="json", exclude_defaults=True, warnings=False))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _option(k, _without(v)) for k, v in value.items() if k not in _IN_CODE}
    return [_without(v) for v in value] if isinstance(value, list) else value


def _option(name: str, value: Any) -> Any:
    return _shown(value, name) if isinstance(value, str) else value


def _complete(value: Any) -> bool:
    """Whether nothing of it had to be hidden."""
    if isinstance(value, dict):
        return all(map(_complete, value.values()))
    if isinstance(value, list):
        return all(map(_complete, value))
    return not (isinstance(value, str) and "***" in value)


def _shown(value: str, name: str = "") -> str:
    """A value without what nobody should see."""
    hidden = redact(value)
    if name:
        told = redact(f"{name}={value}")
        hidden = told.partition("=")[2] if told != f"{name}={value}" else hidden
    return hidden


# -- secrets ---------------------------------------------------------------------------------------


def _secrets(pipeline: Pipeline, table: Table, analysed: Analysed) -> Iterator[str]:
    entries: list[Stream | Static | SinkSpec] = [
        *analysed.built.streams,
        *analysed.built.statics,
        *table.sinks,
    ]
    for entry in entries:
        for value in {**entry.options, **entry.unchecked_options}.values():
            yield from secrets_in(value)


def _hashed(pipeline: Pipeline, value: str) -> str:
    """A hash that only this storage can make."""
    return hmac.new(_key(pipeline), value.encode(), hashlib.sha256).hexdigest()[:16]


def _key(pipeline: Pipeline) -> bytes:
    file = Path(Storage.of(pipeline).folder, ".key")
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def make_key(pipeline: Pipeline) -> None:
    """The key of this storage, made once."""
    file = Path(Storage.of(pipeline).folder, ".key")
    if not file.exists():
        draft = file.with_name(f".key.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(os.urandom(32))
        draft.rename(file)
