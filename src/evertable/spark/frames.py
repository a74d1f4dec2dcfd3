"""Definitions to Spark DataFrames. `check`, `run` and `preview` all see what is built here.

One `Frames` serves one table, in a Spark session of its own: its temp views are its own, and each
use of a stream is a source with a stable name (`bids`, then `bids_2`), so that adding, removing or
reordering streams keeps the checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evertable.errors import EvertableError, Finding, Refused
from evertable.location import Location
from evertable.model.capabilities import SourceCapabilities
from evertable.model.names import did_you_mean
from evertable.model.pipeline import Pipeline, Query, Static, Stream, Table, View
from evertable.spark import sql_names
from evertable.spark.decoding import decoded
from evertable.spark.errors import explain
from evertable.spark.hops import as_stream
from evertable.spark.planner import sources_can_be_named
from evertable.spark.reading import load
from evertable.spark.schemas import SchemaStore
from evertable.spark.secrets import resolve
from evertable.spark.session import SOURCE_EVOLUTION
from evertable.spark.shipping import ship
from evertable.user_code import failure, load_function, parameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Bounded = Callable[["SparkSession", Stream, Mapping[str, str]], "DataFrame | None"]
# Opens a stream in place of its source: the session, the stream, the name of this use of it.
Opened = Callable[["SparkSession", Stream, "str | None"], "DataFrame"]


@dataclass(frozen=True)
class Built:
    """A table's DataFrame, whether its sources could be named, and which streams it reads."""

    frame: DataFrame
    named: bool
    streams: tuple[Stream, ...]
    statics: tuple[Static, ...] = ()
    twice: tuple[str, ...] = ()  # streams that it reads more than once
    texts: Mapping[str, Location] = field(default_factory=dict)  # of SQL, and where each begins
    uses: Mapping[str, str] = field(default_factory=dict)  # names of sources -> their streams
    views: tuple[str, ...] = ()  # that were read on the way


def build(
    session: SparkSession,
    pipeline: Pipeline,
    table: Table,
    sources: Mapping[str, SourceCapabilities],
    schemas: SchemaStore,
    *,
    named: bool | None = None,
    dry: bool = False,
    opened: Opened | None = None,
) -> Built:
    """The streaming DataFrame of a table, named where that can be.

    A Python function may use one DataFrame twice, which Spark sees as one name used twice; such a
    table runs with unnamed sources. `named` says how a checkpoint was begun, which stays so.
    `dry`: nothing will run, so that what other tables will make may be missing. `opened` plays the
    sources.
    """

    def begun(named: bool) -> Frames:
        return Frames(
            session,
            pipeline,
            sources,
            schemas,
            named=named,
            batched=batched,
            dry=dry,
            opened=opened,
        )

    # Rows that come one by one come in no batches, and Spark refuses a cap on them.
    batched = not table.trigger.holds_slots
    if named is not False:
        session.conf.set(SOURCE_EVOLUTION, "true")
        try:
            frames = begun(True)
            frame = frames.of_table(table)
            if named or sources_can_be_named(frame):
                return frames.built(frame)
        except Refused as e:  # a function that reads a source of its own, without a name
            if named or e.findings[0].code != "SOURCE_UNNAMED":
                raise
    session.conf.set(SOURCE_EVOLUTION, "false")
    frames = begun(False)
    return frames.built(frames.of_table(table))


class Frames:
    """Builds DataFrames from a pipeline's definitions."""

    def __init__(
        self,
        session: SparkSession,
        pipeline: Pipeline,
        sources: Mapping[str, SourceCapabilities],
        schemas: SchemaStore,
        *,
        named: bool = True,
        batched: bool = True,
        dry: bool = False,
        bounded: Bounded | None = None,
        opened: Opened | None = None,
        path: Sequence[str] = (),
    ) -> None:
        self._session = session
        self._pipeline = pipeline
        self._sources = sources
        self._schemas = schemas
        self._named = named
        self._batched = batched
        self._dry = dry
        self._opened = opened  # streams are read through this instead of their sources
        self._bounded = bounded  # streams are read through this as bounded pieces instead
        self._inputs = {entry.name.lower(): entry for entry in pipeline.inputs()}
        self._uses: dict[str, int] = {}
        self._names_of_uses: dict[str, str] = {}
        self._taken = set(self._inputs) | {t.name.lower() for t in pipeline.tables}
        self._path = list(path)  # of views and tables that are being built
        self._hops: dict[str, Stream] = {}
        self._statics: dict[str, DataFrame] = {}
        self._texts: dict[str, Location] = {}

    def of_table(self, table: Table) -> DataFrame:
        """The DataFrame of a table's query."""
        self._enter(table)
        try:
            return self.of(table.query, f'table "{table.name}"')
        finally:
            self._path.pop()

    def built(self, frame: DataFrame) -> Built:
        """A DataFrame made here, with what it reads."""
        streams = [*self._pipeline.streams, *self._hops.values()]
        return Built(
            frame,
            self._named,
            tuple(s for s in streams if s.name in self._uses),
            tuple(s for s in self._pipeline.statics if s.name in self._statics),
            tuple(s.name for s in streams if self._uses.get(s.name, 0) > 1),
            self._texts,
            self._names_of_uses,
            tuple(sorted(self.views_used)),
        )

    def of(self, query: Query, what: str) -> DataFrame:
        """The DataFrame of a query, everything it names built first."""
        try:
            return self._sql(query) if query.sql is not None else self._python(query, what)
        except EvertableError as e:
            raise type(e)(*(f.at(query.location) for f in e.findings)) from e
        except Exception as e:
            raise Refused(explain(e, what, query.location, known=self._names())) from e

    def input(self, name: str) -> DataFrame:
        """One stream, static or view."""
        return self._use(self._inputs[name.lower()])[1]

    @property
    def views_used(self) -> set[str]:
        """The views that were built."""
        return {view.name for view in self._pipeline.views if view.name in self._uses}

    def _names(self) -> list[str]:
        return [entry.name for entry in self._inputs.values()]

    def _sql(self, query: Query) -> DataFrame:
        assert query.sql is not None
        found = sql_names.references(self._session, query.sql)
        text = sql_names.replace(query.sql, found, self._view_for)
        if query.location is not None:
            self._texts[text] = query.location
        return self._session.sql(text)

    def _view_for(self, name: str) -> str | None:
        """A temp view for one more use of a name; None where it is none of the pipeline's."""
        entry = self._entry(name)
        if entry is None:
            return None
        view, frame = self._use(entry)
        frame.createOrReplaceTempView(view)
        return view

    def _python(self, query: Query, what: str) -> DataFrame:
        from pyspark.sql import DataFrame

        function = query.function
        if function is None:
            assert query.python is not None
            function = load_function(query.python, self._pipeline.root, query.location)
        ship(self._session, self._pipeline.root)
        arguments: dict[str, Any] = {}
        for name in parameters(function):
            entry = self._entry(name)
            if entry is None:
                raise Refused(
                    Finding(
                        "NAME_UNKNOWN",
                        f'{what} asks for "{name}", which is no stream, static or view',
                        query.location,
                        hint=did_you_mean(name, self._names())
                        or f"known: {', '.join(sorted(self._names()))}",
                    )
                )
            arguments[name] = self._use(entry)[1]
        try:
            frame = function(**arguments)
        except Exception as e:
            from pyspark.errors.exceptions.captured import CapturedException

            if isinstance(e, CapturedException):
                place = failure(e, "").place or query.location
                raise Refused(explain(e, what, place, known=self._names())) from e
            raise Refused(failure(e, f"the function of {what} failed").at(query.location)) from e
        if not isinstance(frame, DataFrame):
            raise Refused(
                Finding(
                    "QUERY_INVALID",
                    f"the function of {what} returns {type(frame).__name__}, not a DataFrame",
                    query.location,
                )
            )
        return frame

    def _use(self, entry: Stream | Static | View) -> tuple[str, DataFrame]:
        """The name and the DataFrame of one more use."""
        if isinstance(entry, Static):
            if entry.name not in self._statics:
                self._statics[entry.name] = self._static(entry)
            return entry.name, self._statics[entry.name]
        name = self._name_of_use(entry.name)
        if isinstance(entry, Stream):
            self._names_of_uses[name] = entry.name
            return name, self._stream(entry, name)
        self._enter(entry)
        try:
            return name, self.of(entry.query, f'view "{entry.name}"')
        finally:
            self._path.pop()

    def _entry(self, name: str) -> Stream | Static | View | None:
        """What a name stands for; a table is a stream to the next one."""
        entry = self._inputs.get(name.lower())
        table = next((t for t in self._pipeline.tables if t.name.lower() == name.lower()), None)
        if entry is not None or table is None:
            return entry
        if self._bounded:  # a piece of the rows that it will have
            return View(name=table.name, query=table.query, location=table.location)
        if table.name not in self._hops:
            self._hops[table.name] = as_stream(table, self._schema_of(table), self._sources)
        return self._hops[table.name]

    def _schema_of(self, table: Table) -> StructType:
        """The columns of a table, from its query and not from what is there by now."""
        frames = Frames(
            self._session,
            self._pipeline,
            self._sources,
            self._schemas,
            named=self._named,
            dry=self._dry,
            opened=self._opened,
            path=self._path,
        )
        return frames.of_table(table).schema

    def _enter(self, entry: View | Table) -> None:
        if entry.name in self._path:
            cycle = " → ".join([*self._path[self._path.index(entry.name) :], entry.name])
            kind = type(entry).__name__
            raise Refused(
                Finding(
                    f"{kind.upper()}_CYCLE",
                    f'{kind.lower()} "{entry.name}" is made from itself: {cycle}',
                    entry.location,
                    hint="a query may name streams, statics, views and other tables, in no circle",
                )
            )
        self._path.append(entry.name)

    def _name_of_use(self, name: str) -> str:
        n = self._uses[name] = self._uses.get(name, 0) + 1
        if n == 1:
            return name
        candidate = f"{name}_{n}"
        while candidate.lower() in self._taken:
            candidate += "_"
        return candidate

    def _stream(self, stream: Stream, source_name: str) -> DataFrame:
        source = self._sources[stream.format]
        what = f'stream "{stream.name}"'
        if self._opened is not None:
            played = self._opened(self._session, stream, source_name if self._named else None)
            return self._prepared(played, stream, source_name)
        options = self.options(stream, source, what)
        if stream.name in self._hops:
            self._made_by_then(stream, options)
        else:
            _must_exist(options, source, what, stream.location)
        try:
            frame = self._bounded and self._bounded(self._session, stream, options)
            if frame is None:
                reader = self._session.readStream
                schema = self._schemas.of(self._session, stream, source, options)
                if schema is not None:
                    reader = reader.schema(schema)
                if self._named:
                    reader = reader.name(source_name)
                frame = load(reader, self._session, stream, options, self._pipeline.root)
            return self._prepared(frame, stream, source_name)
        except EvertableError:
            raise
        except Exception as e:
            raise Refused(explain(e, what, stream.location)) from e

    def _made_by_then(self, stream: Stream, options: dict[str, str]) -> None:
        """The folder of another table is there once that table was started."""
        path = next((v for o, v in options.items() if o.lower() == "path"), "")
        if not path.startswith("/") or os.path.isdir(path):
            return
        if not self._dry:
            raise Refused(
                Finding(
                    "PATH_MISSING",
                    f'table "{stream.name}" is read as a stream, and has not run yet',
                    stream.location,
                    detail=f'there is no folder "{path}"',
                    hint=f"run it too: --only {stream.name},…",
                )
            )
        # Spark wants a folder that is there, also where it will read nothing.
        options.update({o: self._pipeline.root for o in options if o.lower() == "path"})

    def _prepared(self, frame: DataFrame, stream: Stream, source_name: str) -> DataFrame:
        """Decoded, watermarked, deduplicated: what the stream's name stands for in a query."""
        streaming = frame.isStreaming
        if stream.decode:
            counted = streaming and self._batched  # row by row there are no batches to count in
            frame = decoded(frame, stream, source_name, counted=counted)
        if stream.watermark and streaming:
            frame = frame.withWatermark(stream.watermark.column, stream.watermark.delay)
        if stream.dedup:
            keys = list(stream.dedup.keys)
            within = stream.dedup.within == "watermark" and streaming
            frame = (
                frame.dropDuplicatesWithinWatermark(keys) if within else frame.dropDuplicates(keys)
            )
        return frame

    def _static(self, static: Static) -> DataFrame:
        source = self._sources[static.format]
        what = f'static "{static.name}"'
        options = self.options(static, source, what)
        _must_exist(options, source, what, static.location)
        try:
            reader = self._session.read
            if static.schema:
                reader = reader.schema(static.schema)
            return load(reader, self._session, static, options, self._pipeline.root)
        except EvertableError:
            raise
        except Exception as e:
            raise Refused(explain(e, what, static.location)) from e

    def options(
        self,
        entry: Stream | Static,
        source: SourceCapabilities,
        what: str,
    ) -> dict[str, str]:
        """What Spark's reader gets: secrets read, paths made absolute, the default cap added."""
        options = resolve({**entry.options, **entry.unchecked_options}, what, entry.location)
        absolute(options, source.paths, self._pipeline.root)
        given = {o.lower() for o in options}
        if isinstance(entry, Stream) and source.cap and self._batched:
            caps = {source.cap[0].lower(), *(o.lower() for o in source.other_caps)}
            if not caps & given:
                options[source.cap[0]] = source.cap[1]
        return options


def local_path(path: str, root: str) -> str:
    """A path on this machine in full, from `x`, `~/x` or `file:///x`; other URIs as they are."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    if "://" in path:
        return path
    return os.path.normpath(os.path.join(root, os.path.expanduser(path)))


def absolute(options: dict[str, str], paths: tuple[str, ...], root: str) -> None:
    """Relative paths start from the pipeline's folder, wherever the command is typed."""
    for path in paths:
        for option in [o for o in options if o.lower() == path.lower()]:
            value = options[option]
            options[option] = local_path(value, root)


def _must_exist(
    options: Mapping[str, str], source: SourceCapabilities, what: str, place: Location | None
) -> None:
    """Spark's own text for a missing path names neither the stream nor the line."""
    paths = [v for o, v in options.items() if o.lower() == "path" and "path" in source.paths]
    path = paths[0] if paths else ""
    if not path.startswith("/") or any(c in path for c in "*?[{"):
        return
    if not os.path.exists(path):
        raise Refused(
            Finding(
                "PATH_MISSING",
                f'{what} reads "{path}", which does not exist',
                place,
                hint="make the file, or correct `path`"
                if os.path.splitext(path)[1]
                else f"mkdir -p {path}, or correct `path`",
            )
        )
