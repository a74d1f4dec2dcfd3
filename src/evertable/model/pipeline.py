"""The values that a pipeline is made of. Both front doors, YAML and Python, make exactly these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic.dataclasses import dataclass
from pydantic.json_schema import SkipJsonSchema

from evertable.location import Location
from evertable.model.durations import Duration
from evertable.model.names import Name

OutputMode = Literal["append", "update", "complete"]
TriggerKind = Literal[
    "default", "processing_time", "available_now", "once", "continuous", "real_time"
]

_STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


def _as_text(value: object) -> object:
    """Options are text for Spark: `true` and `5` may be written without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value


def _as_tuple(value: object) -> object:
    """`key: id` is short for `key: [id]`."""
    return (value,) if isinstance(value, str) else value


def _as_folder(value: str) -> str:
    """Locks, ledgers and tables are files of this machine; a URI would be taken for a folder."""
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", value)
    if scheme:
        raise ValueError(
            f'"{value}" is no folder of this machine: storage is a path such as ./.evertable '
            f'or /var/lib/evertable, without "{scheme[0]}"'
        )
    return value


# In code only: they are no keys of the file.
Function = SkipJsonSchema[Any]
Place = SkipJsonSchema[Location | None]
Lines = SkipJsonSchema[Mapping[str, int]]


def _lower(value: object) -> object:
    """Names of formats are told apart by their letters only; those of classes are as they are."""
    return value.lower() if isinstance(value, str) and "." not in value else value


Format = Annotated[str, BeforeValidator(_lower), WithJsonSchema({"type": "string"})]
Text = Annotated[str, BeforeValidator(_as_text)]
Options = Annotated[
    Mapping[str, Text],
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }
    ),
]
Folder = Annotated[str, AfterValidator(_as_folder), WithJsonSchema({"type": "string"})]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_tuple),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


def _as_retain(value: object) -> object:
    """`retain: 7 days` is short for `retain: {age: 7 days}`."""
    return {"age": value} if isinstance(value, str) else value


def _as_ids(value: object) -> object:
    """`[7, 8]` is short for ids whose writers used `schema` itself."""
    return dict.fromkeys(value) if isinstance(value, list | tuple) else value


RegistryIds = Annotated[
    Mapping[int, str | None],
    BeforeValidator(_as_ids),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "integer"}},
                {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
            ]
        }
    ),
]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Watermark:
    """How far behind the newest event time a row may be before it counts as late."""

    column: str
    delay: Duration


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Dedup:
    """Rows with keys seen before are dropped: within the watermark's delay, or for ever."""

    keys: Names
    within: Literal["watermark"] | None = None


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Decode:
    """How the bytes or the text of one column become columns."""

    format: Literal["json", "csv", "text", "base64", "avro"]
    column: str = "value"
    schema: str | None = None  # DDL; of Avro its JSON
    options: Options = field(default_factory=dict)
    # Avro behind a registry's header: the writers' schemas by their ids, None for `schema` itself
    registry_ids: RegistryIds = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Stream:
    """An unbounded input table."""

    name: Name
    format: Format
    options: Options = field(default_factory=dict)
    unchecked_options: Options = field(default_factory=dict)
    schema: str | None = None
    decode: Decode | None = None
    watermark: Watermark | None = None
    dedup: Dedup | None = None
    on_bad_record: Literal["null", "fail"] = "null"
    function: Function = field(default=None, compare=False, repr=False)
    option_lines: Lines = field(default_factory=dict, compare=False, repr=False)
    location: Place = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Static:
    """A bounded input table that streams may be joined with."""

    name: Name
    format: Format
    options: Options = field(default_factory=dict)
    unchecked_options: Options = field(default_factory=dict)
    schema: str | None = None
    refresh: Duration | None = None  # how often it is read anew by tables that run
    function: Function = field(default=None, compare=False, repr=False)
    option_lines: Lines = field(default_factory=dict, compare=False, repr=False)
    location: Place = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Query:
    """Either SQL text or the name of a Python function over streams, statics and views."""

    sql: str | None = None
    python: str | None = None
    function: Function = field(default=None, compare=False, repr=False)
    location: Place = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class View:
    """A named query, kept nowhere."""

    name: Name
    query: Query
    location: Place = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Trigger:
    """When the next batch begins."""

    kind: TriggerKind = "default"
    interval: Duration | None = None

    @property
    def ends(self) -> bool:
        """Whether the table is finished some day, by itself."""
        return self.kind in ("once", "available_now")

    @property
    def holds_slots(self) -> bool:
        """Whether each partition of its source keeps a core for as long as the table runs."""
        return self.kind in ("continuous", "real_time")


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Retain:
    """How old a row may become before it is removed, by which time of its own."""

    age: Duration
    by: str | None = None  # a time column; that of the window or the watermark unless named


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SinkSpec:
    """Where a table's rows go."""

    format: Format = "embedded"
    delivery: Literal["at_least_once", "exactly_once"] | None = None  # where a sink has both
    ledger: Literal["embedded"] | None = None  # kept here for a target that has none
    options: Options = field(default_factory=dict)
    unchecked_options: Options = field(default_factory=dict)
    function: Function = field(default=None, compare=False, repr=False)
    option_lines: Lines = field(default_factory=dict, compare=False, repr=False)
    location: Place = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Table:
    """A result table: a query, its output mode, its trigger and its sink."""

    name: Name
    query: Query
    output_mode: OutputMode = "append"
    trigger: Trigger = field(default_factory=Trigger)
    sinks: tuple[SinkSpec, ...] = (SinkSpec(),)  # each gets every batch, and has its own ledger
    key: Names = ()
    order_by: str | None = None  # of two rows with one key the one with the greater value stays
    delete_when: str | None = None  # SQL; such a row removes the one with its key
    retain: Annotated[
        Retain | None,
        BeforeValidator(_as_retain),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {
                        "type": "object",
                        "properties": {"age": {"type": "string"}, "by": {"type": "string"}},
                        "required": ["age"],
                        "additionalProperties": False,
                    },
                ]
            }
        ),
    ] = None
    on_schema_change: Literal["fail", "add_columns"] | None = None  # None: as its sink does
    partition_by: Names = ()
    watermark_policy: Literal["min", "max"] = "min"
    stop_timeout: Duration = "30 seconds"
    on_failure: Literal["isolate", "stop"] = "isolate"
    location: Place = field(default=None, compare=False)

    @property
    def async_progress(self) -> bool:
        """Whether Spark's logs are written behind its batches (only where it runs the sink)."""
        return any(
            option.lower() == "asyncprogresstrackingenabled" and value.lower() == "true"
            for spec in self.sinks
            for option, value in spec.options.items()
        )

    def sink(self, format: str) -> SinkSpec | None:
        """Its sink of that format, if it has one."""
        return next((spec for spec in self.sinks if spec.format == format), None)


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Pipeline:
    """A named set of streams, statics, views and tables."""

    name: Name
    root: str = field(compare=False)  # the folder that relative paths start from
    storage: Folder = "./.evertable"
    spark: Options = field(default_factory=dict)
    streams: tuple[Stream, ...] = ()
    statics: tuple[Static, ...] = ()
    views: tuple[View, ...] = ()
    tables: tuple[Table, ...] = ()
    location: Place = field(default=None, compare=False)

    def inputs(self) -> Iterator[Stream | Static | View]:
        """Everything a query may name."""
        yield from self.streams
        yield from self.statics
        yield from self.views

    def table(self, name: str) -> Table | None:
        return next((t for t in self.tables if t.name == name), None)


def place_of(entry: Stream | Static | SinkSpec, option: str) -> Location | None:
    """The line of one option, in whatever case it is written; else that of the entry."""
    lines = {name.lower(): line for name, line in entry.option_lines.items()}
    line = lines.get(option.lower())
    return Location(entry.location.file, line) if entry.location and line else entry.location
