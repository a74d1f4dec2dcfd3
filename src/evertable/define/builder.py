"""The Python door: calls and decorators to the same entries that YAML makes."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, overload

from evertable.define import entries
from evertable.define.schemas import SchemaProblem, ddl_of_class
from evertable.define.yaml_file import in_order, names_taken_twice
from evertable.errors import DefinitionError, Finding
from evertable.location import Location
from evertable.model.names import PATTERN
from evertable.model.pipeline import (
    Decode,
    Dedup,
    OutputMode,
    Pipeline,
    Query,
    Retain,
    SinkSpec,
    Static,
    Stream,
    Table,
    Trigger,
    View,
    Watermark,
)

F = TypeVar("F", bound=Callable[..., Any])
AnySink = SinkSpec | Mapping[str, object] | str
Schema = str | type  # DDL, a .json or .avsc file, a dataclass or a pydantic model


class TableKeys(TypedDict, total=False):
    """What a table may be given besides its query; the same keys as in YAML."""

    output_mode: OutputMode
    trigger: Trigger | str
    sink: AnySink | Sequence[AnySink]
    key: str | Sequence[str]
    order_by: str
    delete_when: str
    retain: Retain | str
    on_schema_change: Literal["fail", "add_columns"]
    partition_by: str | Sequence[str]
    watermark_policy: Literal["min", "max"]
    stop_timeout: str
    on_failure: Literal["isolate", "stop"]


class PipelineBuilder:
    """Collects streams, statics, views and tables; `model` is the frozen pipeline."""

    def __init__(
        self,
        name: str,
        *,
        storage: str = "./.evertable",
        spark: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._place = _caller()
        self._storage = storage
        self._spark = dict(spark or {})
        self._streams: list[Stream] = []
        self._statics: list[Static] = []
        self._views: list[View] = []
        self._tables: list[Table] = []
        self._findings: list[Finding] = []
        self._stand_ins: list[View] = []

    def stream(
        self,
        name: str,
        *,
        format: str | type,
        path: str | None = None,
        options: Mapping[str, object] | None = None,
        unchecked_options: Mapping[str, object] | None = None,
        schema: Schema | None = None,
        decode: Decode | None = None,
        watermark: Watermark | tuple[str, str] | None = None,
        dedup: Dedup | None = None,
        on_bad_record: str = "null",
    ) -> None:
        """Add an unbounded input table."""
        if isinstance(watermark, tuple):
            watermark = {"column": watermark[0], "delay": watermark[1]}  # type: ignore[assignment]
        format, options, function = _format(format, options)
        entry = _given(
            format=format,
            path=path,
            options=options,
            unchecked_options=unchecked_options,
            schema=schema,
            decode=decode,
            watermark=watermark,
            dedup=dedup,
            on_bad_record=on_bad_record,
        )
        place = _caller()
        value, findings = entries.stream(name, entry, lambda path: place, self._root, function)
        self._keep(self._streams, name, value, findings)

    def static(
        self,
        name: str,
        *,
        format: str | type,
        path: str | None = None,
        options: Mapping[str, object] | None = None,
        unchecked_options: Mapping[str, object] | None = None,
        schema: Schema | None = None,
        refresh: str | None = None,
    ) -> None:
        """Add a bounded input table."""
        format, options, function = _format(format, options)
        entry = _given(
            format=format,
            path=path,
            options=options,
            unchecked_options=unchecked_options,
            schema=schema,
            refresh=refresh,
        )
        place = _caller()
        value, findings = entries.static(name, entry, lambda path: place, self._root, function)
        self._keep(self._statics, name, value, findings)

    @overload
    def view(self, function: F, /) -> F: ...
    @overload
    def view(self, name: str, /, *, sql: str) -> None: ...
    def view(self, function: Any, /, *, sql: str | None = None) -> Any:
        """Decorate a function over streams, statics and views by name; or name some SQL."""
        name, query, place = self._query_of(function, sql)
        value, findings = entries.view(name, query, lambda path: place)
        self._keep(self._views, name, value, findings)
        return function if sql is None else None

    def define_table(
        self, function: Callable[..., Any] | str, sql: str | None, keys: TableKeys
    ) -> None:
        """Add a table: a function that makes its rows, or a name and SQL."""
        name, query, place = self._query_of(function, sql)
        entry = _given(**keys)
        value, findings = entries.table(name, entry, query, lambda path: place)
        self._keep(self._tables, name, value, findings)

    @property
    def model(self) -> Pipeline:
        """The frozen pipeline, or DefinitionError with everything that is wrong."""
        pipeline, findings = self.defined()
        if findings:
            raise DefinitionError(*in_order(findings))
        assert pipeline is not None
        return pipeline

    def defined(self) -> tuple[Pipeline | None, list[Finding]]:
        """What was defined so far, and everything that is wrong in it.

        In place of an entry that is wrong stands an empty view, so that queries may ask for it.
        """
        made = {
            "streams": tuple(self._streams),
            "statics": tuple(self._statics),
            "views": tuple(self._views),
            "tables": tuple(self._tables),
        }
        findings = [
            *self._findings,
            *names_taken_twice([(kind[:-1], v) for kind, vs in made.items() for v in vs]),
        ]
        if not self._tables and not findings:
            findings.append(
                Finding(
                    "KEY_MISSING", "the pipeline has no tables, so nothing would run", self._place
                )
            )
        keys: dict[str, object] = {
            **made,
            "name": self.name,
            "storage": self._storage,
            "spark": self._spark,
            "root": self._root,
            "views": (*self._views, *self._stand_ins),
        }
        pipeline, more = entries.pipeline(keys, lambda path: self._place)
        return pipeline, [*findings, *more]

    @property
    def _root(self) -> str:
        """The folder that relative paths start from."""
        file = self._place.file
        return os.path.dirname(os.path.abspath(file)) if os.path.isfile(file) else os.getcwd()

    def _keep(self, values: list[Any], name: str, value: object, findings: list[Finding]) -> None:
        self._findings += findings
        if value is not None:
            values.append(value)
        elif re.fullmatch(PATTERN, name):
            self._stand_ins.append(View(name=name, query=Query(sql="SELECT 1")))

    def _query_of(self, function: Any, sql: str | None) -> tuple[str, Query, Location]:
        if sql is not None:
            place = _caller()
            return str(function), Query(sql=inspect.cleandoc(sql), location=place), place
        code = function.__code__
        place = Location(code.co_filename, code.co_firstlineno)
        module = os.path.basename(code.co_filename)
        query = Query(python=f"{module}:{function.__name__}", function=function, location=place)
        return function.__name__, query, place


def _format(
    given: str | type, options: Mapping[str, object] | None
) -> tuple[str, Mapping[str, object] | None, type | None]:
    """A class that is a data source, as YAML would say it."""
    if isinstance(given, str):
        return given, options, None
    return "python", {"class": _reference(given), **(options or {})}, given


def _given(**keys: object) -> dict[str, object]:
    return {k: v for k, v in keys.items() if v is not None and v != ()}


def _caller() -> Location:
    """The line of user code that called us."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(ours):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


# The words of a definition, as they are used in `ads.table(trigger=et.every("5 seconds"))`.


def every(interval: str) -> Trigger:
    """A batch every so often."""
    return Trigger(kind="processing_time", interval=interval)


def once() -> Trigger:
    """One batch with everything there is, then the table is finished."""
    return Trigger(kind="once")


def available_now() -> Trigger:
    """Everything there is now, in batches, then the table is finished."""
    return Trigger(kind="available_now")


def continuous(interval: str) -> Trigger:
    """Rows one by one, in milliseconds; progress is committed every so often."""
    return Trigger(kind="continuous", interval=interval)


def real_time(interval: str = "5 minutes") -> Trigger:
    """Rows as they come, in milliseconds, also with state; committed every so often."""
    return Trigger(kind="real_time", interval=interval)


def json(schema: Schema, *, column: str = "value", **options: object) -> Decode:
    """Decode a column that holds JSON."""
    return Decode(format="json", column=column, schema=_written(schema), options=_texts(options))


def csv(schema: Schema, *, column: str = "value", **options: object) -> Decode:
    """Decode a column that holds a line of CSV."""
    return Decode(format="csv", column=column, schema=_written(schema), options=_texts(options))


def avro(
    schema: str,
    *,
    column: str = "value",
    registry_ids: Mapping[int, str | None] | Sequence[int] = (),
    **options: object,
) -> Decode:
    """Decode a column that holds Avro; with `registry_ids` behind a schema registry's header."""
    ids = dict(registry_ids) if isinstance(registry_ids, Mapping) else dict.fromkeys(registry_ids)
    return Decode(
        format="avro", column=column, schema=schema, registry_ids=ids, options=_texts(options)
    )


def text(*, column: str = "value") -> Decode:
    """A column of bytes as text."""
    return Decode(format="text", column=column)


def base64(*, column: str = "value") -> Decode:
    """A column of Base64 as the bytes it stands for."""
    return Decode(format="base64", column=column)


def files(format: str, path: str, **options: object) -> SinkSpec:
    """Rows into files: parquet, orc, csv, json, text, xml or avro."""
    return SinkSpec(format=format, options={"path": path, **_texts(options)})


def kafka(
    servers: str, *, topic: str | None = None, exactly_once: bool = False, **options: object
) -> SinkSpec:
    """Rows into Kafka: columns value, key, headers, topic, partition. At least once, or a
    transaction a batch."""
    given = {"kafka.bootstrap.servers": servers, **({"topic": topic} if topic else {})}
    delivery: Literal["exactly_once"] | None = "exactly_once" if exactly_once else None
    return SinkSpec(format="kafka", options={**given, **_texts(options)}, delivery=delivery)


def postgres(url: str | None = None, *, table: str | None = None, **options: object) -> SinkSpec:
    """Rows into a table of Postgres, exactly once; libpq's environment says what `url` does not."""
    given = _given(url=url, table=table)
    return SinkSpec(format="postgres", options=_texts({**given, **options}))


def table(name: str, **options: object) -> SinkSpec:
    """Rows into a table of Spark's catalog."""
    return SinkSpec(format="table", options={"table": name, **_texts(options)})


def call(
    target: Callable[..., Any], *, ledger: Literal["embedded"] | None = None, **options: object
) -> SinkSpec:
    """Each batch to a function of yours, (batch DataFrame, batch id); or each row to
    `process(row)` of a class of yours, which may have `open(partition, batch)` and
    `close(error)`; or batches to a class that is a sink itself: `open(table, query_id)` gives a
    session. `ledger="embedded"` notes here which batches it got; options are the class's own."""
    given = {"call": _reference(target), **_texts(options)}
    return SinkSpec(format="python", options=given, function=target, ledger=ledger)


def data_source(target: type, **options: object) -> SinkSpec:
    """Rows into a data source of yours: a class that extends pyspark's DataSource."""
    given = {"class": _reference(target), **_texts(options)}
    return SinkSpec(format="python", options=given, function=target)


def _reference(target: Any) -> str:
    """`module.py:name`, as YAML would say it."""
    file = inspect.getsourcefile(target if hasattr(target, "__name__") else type(target)) or ""
    return f"{os.path.basename(file)}:{getattr(target, '__name__', type(target).__name__)}"


def _written(schema: Schema) -> str:
    """Classes as DDL; files are read once it is known where the pipeline stands."""
    if isinstance(schema, str):
        return schema
    try:
        return ddl_of_class(schema)
    except SchemaProblem as e:
        raise DefinitionError.of("SCHEMA_INVALID", f"a schema: {e}", place=_caller()) from e


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in options.items()}
