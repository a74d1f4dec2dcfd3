"""The sources of a pipeline, played by a test: what was pushed, for every query that reads it."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import decimal
import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from evertable.errors import Finding, Refused
from evertable.model.pipeline import Pipeline, Stream
from evertable.sources.registry import SOURCES
from evertable.spark import frames, reading
from evertable.spark.memory import MemoryStream, block_of
from evertable.spark.schemas import SchemaStore
from evertable.testing.times import Day
from evertable.testing.values import table_of, typed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# What sources with columns of their own give.
_OWN = {
    "kafka": "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT",
    "socket": "value STRING",
    "text": "value STRING",
    "rate": "timestamp TIMESTAMP, value BIGINT",
    "rate-micro-batch": "timestamp TIMESTAMP, value BIGINT",
}
_HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


class PlayedSources:
    """Every row that was pushed, by stream; a query that starts anew gets all of it again."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, schemas: SchemaStore, now: Callable[[], int]
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._schemas = schemas
        self._now = now
        self._columns: dict[str, StructType] = {}
        self._pushed: dict[str, list[pa.Table]] = {}
        self._blocks: dict[str, list[Any]] = {}
        self._readers: dict[str, list[MemoryStream]] = {}

    def open(self, session: SparkSession, stream: Stream, name: str | None) -> DataFrame:
        """What `frames` gets in place of a source; for tables that are read as streams too."""
        stands_for = MemoryStream(session, self.columns(stream))
        for block in self._blocks.get(stream.name, ()):
            stands_for.add(block)
        self._readers.setdefault(stream.name, []).append(stands_for)
        return stands_for.frame(name)

    def bounded(
        self, session: SparkSession, stream: Stream, options: Mapping[str, str]
    ) -> DataFrame:
        """All that was pushed, as one batch DataFrame."""
        import pyarrow as pa

        columns = self.columns(stream)
        pushed = self._pushed.get(stream.name) or [table_of([], columns)]
        # In one piece: Spark 4.3 stops reading at a piece without rows.
        rows = pa.concat_tables(pushed).combine_chunks()
        return session.createDataFrame(rows, columns)

    def forget_readers(self) -> None:
        """Their queries have ended."""
        self._readers = {}

    def push(self, stream: Stream, rows: Iterable[Mapping[str, Any]], day: Day) -> None:
        """Rows as the stream's queries see them, or records as its source has them."""
        columns = self.columns(stream)
        given = [dict(row) for row in rows]
        what = f'push to stream "{stream.name}"'
        if stream.decode:
            given = [self._encoded(stream, row, columns, day, what) for row in given]
        if stream.format == "kafka":
            given = [self._record(stream, row, number) for number, row in enumerate(given)]
        self.add(stream.name, table_of(typed(given, columns, day, what), columns), columns)

    def add(self, name: str, rows: pa.Table, columns: StructType) -> None:
        """One block for every query that reads the stream."""
        block = block_of(self._spark, rows, columns)
        self._pushed.setdefault(name, []).append(rows)
        self._blocks.setdefault(name, []).append(block)
        for reader in self._readers.get(name, ()):
            reader.add(block)

    def blocks(self, name: str) -> int:
        return len(self._blocks.get(name, ()))

    def columns(self, stream: Stream) -> StructType:
        """The columns of a source, before anything is decoded."""
        key = stream.name
        if key not in self._columns:
            self._columns[key] = self._of_source(stream)
        return self._columns[key]

    def _of_source(self, stream: Stream) -> StructType:
        options = {o.lower(): v.lower() for o, v in stream.options.items()}
        if stream.schema:
            return _parsed(stream.schema)
        if stream.format in _OWN:
            headers = _HEADERS if options.get("includeheaders") == "true" else ""
            stamped = ", timestamp TIMESTAMP" if options.get("includetimestamp") == "true" else ""
            return _parsed(_OWN[stream.format] + headers + stamped)
        source = SOURCES[stream.format]
        built = frames.Frames(self._spark, self._pipeline, SOURCES, self._schemas)
        given = built.options(stream, source, f'stream "{stream.name}"')
        reader = self._spark.readStream
        schema = self._schemas.of(self._spark, stream, source, given)
        if schema is not None:
            reader = reader.schema(schema)
        root = self._pipeline.root
        return reading.load(reader, self._spark, stream, given, root).schema

    def _encoded(
        self, stream: Stream, row: dict[str, Any], columns: StructType, day: Day, what: str
    ) -> dict[str, Any]:
        """A row of decoded columns as the record that its source would have."""
        decode = stream.decode
        assert decode is not None
        own = set(columns.names)
        if decode.column in row and decode.format not in ("text", "base64"):
            return row
        if decode.format == "text":
            return row
        if decode.format == "base64":
            value = row.get(decode.column)
            as_bytes = value.encode() if isinstance(value, str) else value
            return {**row, decode.column: as_bytes and base64.b64encode(as_bytes).decode()}
        if decode.format == "avro":
            raise Refused(
                Finding(
                    "ROW_INVALID",
                    f"{what}: its records are Avro; push them as bytes, in column "
                    f'"{decode.column}"',
                )
            )
        fields = _parsed(decode.schema or "")
        record = {name: value for name, value in row.items() if name in fields.names}
        rest = {n: v for n, v in row.items() if n not in fields.names}
        unknown = [n for n in rest if n not in own]
        checked = typed([{**record, **dict.fromkeys(unknown)}], fields, day, what)[0]
        encode = _as_json if decode.format == "json" else _as_csv
        return {**rest, decode.column: encode(checked)}

    def _record(self, stream: Stream, row: dict[str, Any], number: int) -> dict[str, Any]:
        """A Kafka record with all that a broker adds."""
        options = {o.lower(): v for o, v in stream.options.items()}
        before = sum(table.num_rows for table in self._pushed.get(stream.name, ()))
        added = {
            "topic": options.get("subscribe", stream.name).partition(",")[0],
            "partition": 0,
            "offset": before + number,
            "timestamp": dt.datetime.fromtimestamp(self._now() / 1000, dt.UTC),
            "timestampType": 0,
        }
        return {**added, **row}


def _parsed(ddl: str) -> StructType:
    from pyspark.sql.types import _parse_datatype_string

    parsed: Any = _parse_datatype_string(ddl)
    return parsed  # type: ignore[no-any-return]


def _as_json(record: Mapping[str, Any]) -> str:
    given = {name: value for name, value in record.items() if value is not None}
    return json.dumps(given, default=_json_value, ensure_ascii=False)


def _json_value(value: object) -> object:
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)  # Spark reads numbers from text too, and a float would round
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


def _as_csv(record: Mapping[str, Any]) -> str:
    line = io.StringIO()
    values = [v.isoformat() if isinstance(v, dt.date) else v for v in record.values()]
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
