"""Records to columns. One that does not decode becomes NULLs and is counted, or ends the table.

Under ANSI a bad cast ends a query for good, so nothing here casts what may fail. How many records
of a batch did not decode comes with its progress, as an observed metric.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evertable.model.pipeline import Decode, Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BAD_RECORDS = "bad records of "  # and the name of the source
_RECORD, _BAD, _CORRUPT = "__record", "__bad", "__corrupt"
_SHOWN = 200  # characters of a bad record


def decoded(frame: DataFrame, stream: Stream, source: str, *, counted: bool) -> DataFrame:
    """The record's columns first, then the source's own columns, without the raw one.

    Where both have a column of one name, the record's own wins.
    """
    from pyspark.sql import functions as F

    decode = stream.decode
    assert decode is not None
    raw = F.col(decode.column)
    record, bad, hidden = _record(decode, raw)
    frame = frame.withColumn(_RECORD, record)
    if stream.on_bad_record == "fail":
        shown = F.substring(raw.cast("string"), 1, _SHOWN)
        said = F.concat(F.lit(f"EVERTABLE_BAD_RECORD of {stream.name}: "), shown)
        frame = frame.where(F.when(bad, F.raise_error(said).cast("boolean")).otherwise(True))
    elif counted:
        frame = frame.observe(f"{BAD_RECORDS}{source}", F.count_if(bad).alias("bad"))
    kind: Any = frame.schema[_RECORD].dataType
    names = [f.name for f in getattr(kind, "fields", [])]
    others = [c for c in frame.columns if c not in (decode.column, _RECORD)]
    if not names:
        return frame.select(F.col(_RECORD).alias(decode.column), *map(_column, others))
    own = [n for n in names if n != hidden]
    lower = {n.lower() for n in own}
    kept = [_column(c) for c in others if c.lower() not in lower]
    return frame.select(*(F.col(_RECORD).getField(n).alias(n) for n in own), *kept)


def bad_records(progress: Mapping[str, Any]) -> int:
    """How many records of a batch did not decode, over all of its sources."""
    observed = progress.get("observedMetrics") or {}
    return sum(
        metrics.get("bad", 0) for name, metrics in observed.items() if name.startswith(BAD_RECORDS)
    )


def _record(decode: Decode, raw: Column) -> tuple[Column, Column, str]:
    """What a record becomes, whether it is bad, and the field of it that nobody sees."""
    from pyspark.sql import functions as F

    text = raw.cast("string")
    record = F.col(_RECORD)
    given = raw.isNotNull()  # a record without a value is none that fails: Kafka's tombstones
    match decode.format:
        case "text":
            return F.try_validate_utf8(text), given & record.isNull(), ""
        case "base64":
            return F.try_to_binary(text, F.lit("base64")), given & record.isNull(), ""
        case "avro":
            return _avro(decode, raw), given & _missing(decode, record), ""
        case "json" | "csv":
            assert decode.schema is not None
            options = {k: str(v) for k, v in decode.options.items()}
            theirs = {k.lower(): v for k, v in options.items()}.get("columnnameofcorruptrecord")
            hidden = "" if theirs else _CORRUPT
            schema = decode.schema if theirs else f"{decode.schema}, {_CORRUPT} STRING"
            options |= {"columnNameOfCorruptRecord": theirs or _CORRUPT}
            options = {"mode": "PERMISSIVE", **options}
            made = (
                F.from_json(text, schema, options)
                if decode.format == "json"
                else F.from_csv(text, schema, options)
            )
            bad = given & (record.isNull() | record.getField(theirs or _CORRUPT).isNotNull())
            return made, bad, hidden


def _avro(decode: Decode, raw: Column) -> Column:
    """Plain Avro; or behind a registry's five bytes: 0, then the id of the writer's schema."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    assert decode.schema is not None
    options = {"mode": "PERMISSIVE", **decode.options}
    if not decode.registry_ids:
        return from_avro(raw, decode.schema, options)
    body = F.substring(raw, 6, 2_147_483_647)
    header = F.hex(F.substring(raw, 1, 5))
    # One reader's schema for all writers: fields that a writer did not know get their defaults.
    options["avroSchema"] = decode.schema
    record: Column | None = None
    for number, writer in sorted(decode.registry_ids.items()):
        made = from_avro(body, writer or decode.schema, options)
        is_his = header == F.lit(f"00{number:08X}")
        record = F.when(is_his, made) if record is None else record.when(is_his, made)
    assert record is not None
    return record


def _missing(decode: Decode, record: Column) -> Column:
    """Bad Avro becomes NULL in every field; a field that cannot be NULL tells it."""
    assert decode.schema is not None
    fields = json.loads(decode.schema)["fields"]
    required = [f["name"] for f in fields if not _may_be_null(f["type"])]
    looked_at = required[:1] or [f["name"] for f in fields]
    missing = record.getField(looked_at[0]).isNull()
    for name in looked_at[1:]:
        missing = missing & record.getField(name).isNull()
    return record.isNull() | missing


def _may_be_null(kind: object) -> bool:
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")
