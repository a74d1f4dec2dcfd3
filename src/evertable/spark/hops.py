"""A table kept in files or in Kafka, as the stream of the next table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from evertable.errors import Finding, Refused
from evertable.model.capabilities import SourceCapabilities
from evertable.model.pipeline import Pipeline, Query, SinkSpec, Stream, Table
from evertable.spark import sql_names
from evertable.user_code import load_function, parameters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def kept_in(table: Table) -> SinkSpec | None:
    """The sink of a table that a stream can be read from."""
    return next((s for s in table.sinks if s.format == "kafka" or _path(s) is not None), None)


def as_stream(
    table: Table, schema: StructType, sources: Mapping[str, SourceCapabilities]
) -> Stream:
    """What a query reads that names the table; Refused where its sink keeps no rows to read."""
    spec = kept_in(table)
    if spec is None:
        raise Refused(
            Finding(
                "NAME_UNKNOWN",
                f'"{table.name}" is a table that is not kept in files or Kafka, so that no query '
                "can read it as a stream",
                hint="move what both need into a view, or keep it in files: "
                "sink: {format: parquet, path: …}",
            )
        )
    options = {**spec.options, **spec.unchecked_options}
    if spec.format == "kafka":
        topic = next((v for o, v in options.items() if o.lower() == "topic"), None)
        if topic is None:
            raise Refused(
                Finding(
                    "NAME_UNKNOWN",
                    f'table "{table.name}" writes to topics by its rows, so it is no one stream',
                    hint="declare a stream with subscribe or subscribePattern",
                )
            )
        client = {o: v for o, v in options.items() if _reads(sources["kafka"], o)}
        options = {**client, "subscribe": topic, "startingOffsets": "earliest"}
        if spec.delivery == "exactly_once":  # batches that were never committed are not read
            options["kafka.isolation.level"] = "read_committed"
        ddl = None
    else:
        options = {o: v for o, v in options.items() if _reads(sources[spec.format], o)}
        ddl = schema.toDDL() if sources[spec.format].takes_schema else None
    return Stream(
        name=table.name,
        format=spec.format,
        options=options,
        schema=ddl,
        location=table.location,
    )


def tables_read(session: SparkSession, pipeline: Pipeline, table: Table) -> set[str]:
    """The names of the tables that a table's query reads, through its views too."""
    names = {t.name.lower(): t.name for t in pipeline.tables}
    views = {v.name.lower(): v for v in pipeline.views}
    found: set[str] = set()
    seen: set[str] = set()
    todo = [table.query]
    while todo:
        for name in _names(session, pipeline, todo.pop()):
            if name in names:
                found.add(names[name])
            elif name in views and name not in seen:
                seen.add(name)
                todo.append(views[name].query)
    return found


def upstream_first(tables: Iterable[Table], reads: Mapping[str, set[str]]) -> list[Table]:
    """Each table after those that it reads; in the order given where that does not matter."""
    waiting = list(tables)
    done: list[Table] = []
    while waiting:
        names = {table.name for table in waiting}
        ready = next((t for t in waiting if not reads[t.name] & (names - {t.name})), waiting[0])
        waiting.remove(ready)
        done.append(ready)
    return done


def _names(session: SparkSession, pipeline: Pipeline, query: Query) -> Iterator[str]:
    """What a query names; nothing of one that is wrong, which its analysis will say."""
    try:
        if query.sql is not None:
            found = [r.name for r in sql_names.references(session, query.sql)]
        else:
            function = query.function or load_function(
                query.python or "", pipeline.root, query.location
            )
            found = parameters(function)
    except Exception:
        return
    yield from (name.lower() for name in found)


def _path(spec: SinkSpec) -> str | None:
    return next((v for o, v in spec.options.items() if o.lower() == "path"), None)


def _reads(source: SourceCapabilities, option: str) -> bool:
    return option.lower() in {o.lower() for o in source.options - source.streaming_only}
