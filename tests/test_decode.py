"""Records to columns: every format, schemas however they are given, and records that are bad."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import io
import json
import typing

import fastavro
import pydantic
import pytest

import evertable as et
from evertable.define.schemas import SchemaProblem, ddl_of_class, ddl_of_json
from evertable.errors import EvertableError
from evertable.project import open_pipeline
from evertable.run.events import Batch
from kit import Failed

AD = {
    "type": "record",
    "name": "Ad",
    "fields": [{"name": "ad", "type": "string"}, {"name": "n", "type": "int"}],
}
AD_2 = {
    **AD,
    "fields": [*AD["fields"], {"name": "brand", "type": ["null", "string"], "default": None}],
}


def avro(schema, **values):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), values)
    return out.getvalue()


def wire(number, body):
    return b"\0" + number.to_bytes(4, "big") + body


def run(kit, kafka, decode, *records, more="", query="SELECT * FROM s", keep="ad, n"):
    """The decoded rows of these records, read from Kafka; bad ones are in kit.events."""
    topic = kafka.topic("a")
    kafka.produce(topic, *records)
    kit.run(
        kit.yaml(f"""
name: p
streams:
  s:
    format: kafka
    options:
      kafka.bootstrap.servers: "{kafka.address}"
      subscribe: {topic}
      startingOffsets: earliest
    decode: {decode}
    {more}
tables:
  t: {{query: "{query}", trigger: available_now}}
""")
    )
    return kit.rows("t", keep)


def bad(kit):
    return sum(e.bad for e in kit.events if isinstance(e, Batch))


def test_json_keeps_good_records_and_counts_bad_ones(kit, kafka):
    rows = run(
        kit, kafka, '{format: json, schema: "ad STRING, n INT, at TIMESTAMP"}',
        '{"ad":"a","n":1,"at":"2026-01-01T00:00:00Z"}', '{"ad":"b","n":"two"}', "no json", None,
        '{"ad":"c","n":3,"at":"not a time"}',
    )  # fmt: skip
    assert rows == sorted(
        [("a", 1), ("b", None), (None, None), (None, None), ("c", 3)], key=repr
    )  # what is good in a bad record is kept
    assert bad(kit) == 3, "a record without a value is not bad"


def test_a_query_that_uses_no_decoded_column_still_counts(kit, kafka):
    query = "SELECT topic, `offset` AS n, 'x' AS ad FROM s"
    run(kit, kafka, '{format: json, schema: "ad STRING"}', "{}", "no json", query=query)
    assert bad(kit) == 1


def test_csv(kit, kafka):
    decode = '{format: csv, schema: "ad STRING, n INT", options: {sep: ";"}}'
    rows = run(kit, kafka, decode, "a;1", "b;x")
    assert rows == [("a", 1), ("b", None)]
    assert bad(kit) == 1


def test_text_of_bytes_that_are_none(kit, kafka):
    rows = run(kit, kafka, "{format: text}", b"fine", b"\xff\xfe", keep="value")
    assert rows == [("fine",), (None,)]
    assert bad(kit) == 1


def test_base64(kit, kafka):
    record = base64.b64encode(b"\x01\x02")
    query = "SELECT hex(value) AS h FROM s"
    rows = run(kit, kafka, "{format: base64}", record, "~~~", query=query, keep="h")
    assert rows == [("0102",), (None,)]
    assert bad(kit) == 1


def test_plain_avro(kit, kafka):
    kit.write("ad.avsc", json.dumps(AD))
    rows = run(kit, kafka, "{format: avro, schema: ad.avsc}", avro(AD, ad="a", n=1), b"\x09")
    assert rows == [("a", 1), (None, None)]
    assert bad(kit) == 1


def test_avro_of_a_registry_with_two_writers_and_one_that_nobody_knows(kit, kafka):
    kit.write("v1.avsc", json.dumps(AD))
    kit.write("v2.avsc", json.dumps(AD_2))
    rows = run(
        kit, kafka, "{format: avro, schema: v2.avsc, registry_ids: {7: v1.avsc, 300: v2.avsc}}",
        wire(7, avro(AD, ad="a", n=1)),
        wire(300, avro(AD_2, ad="b", n=2, brand="kestrel")),
        wire(8, avro(AD, ad="c", n=3)),
        b"\1" + wire(7, avro(AD, ad="d", n=4))[1:],
        b"\0\0",
        keep="ad, n, brand",
    )  # fmt: skip
    none = (None, None, None)
    assert rows == sorted([("a", 1, None), ("b", 2, "kestrel"), none, none, none], key=repr)
    assert bad(kit) == 3


def test_one_writer_in_short(kit, kafka):
    kit.write("ad.avsc", json.dumps(AD))
    decode = "{format: avro, schema: ad.avsc, registry_ids: [7]}"
    assert run(kit, kafka, decode, wire(7, avro(AD, ad="a", n=1))) == [("a", 1)]


@pytest.mark.parametrize(
    ("decode", "record"),
    [
        ('{format: json, schema: "n INT"}', '{"n":"two"}'),
        ('{format: csv, schema: "n INT"}', "two"),
        ("{format: text}", b"\xff"),
        ("{format: base64}", "~~~"),
        ("{format: avro, schema: ad.avsc}", b"\x09"),
    ],
)
def test_a_bad_record_ends_the_table_where_that_is_asked_for(kit, kafka, decode, record):
    kit.write("ad.avsc", json.dumps(AD))
    with pytest.raises(Failed) as e:
        run(kit, kafka, decode, record, more="on_bad_record: fail")
    assert e.value.finding.code == "RECORD_INVALID"
    assert "on_bad_record: null" in e.value.finding.hint


def test_a_stream_used_twice_counts_each_use(kit):
    kit.feed("in", '{"n":1}', "no json")
    p = kit.yaml("""
name: p
streams:
  s: {format: text, path: in, decode: {format: json, schema: "n INT"}}
tables:
  t: {query: SELECT n FROM s UNION ALL SELECT n + 10 FROM s, trigger: available_now}
""")
    kit.run(p)
    assert kit.rows("t") == [(1,), (11,), (None,), (None,)]
    assert bad(kit) == 2


def test_key_offset_and_other_columns_stay(kit, kafka):
    query = "SELECT ad, n, CAST(key AS STRING) AS k, `offset` AS o FROM s"
    decode = '{format: json, schema: "ad STRING, n INT"}'
    assert run(kit, kafka, decode, '{"ad":"a","n":1}', query=query, keep="*") == [("a", 1, None, 0)]


# -- schemas -------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Place:
    city: str
    zip_code: int | None = None


@dataclasses.dataclass
class Click:
    ad: str
    n: int
    cost: decimal.Decimal
    at: dt.datetime
    day: dt.date
    raw: bytes
    share: float
    ok: bool
    tags: list[str]
    counts: dict[str, int]
    colour: Colour
    kind: typing.Literal["a", "b"]
    place: Place | None


class Model(pydantic.BaseModel):
    ad: str
    n: int | None = None
    odd: str = pydantic.Field(alias="odd name")
    place: list[Place] = []


def test_a_dataclass_and_a_pydantic_model_are_schemas():
    assert ddl_of_class(Click) == (
        "ad STRING, n BIGINT, cost DECIMAL(38,18), at TIMESTAMP, day DATE, raw BINARY, "
        "share DOUBLE, ok BOOLEAN, tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, "
        "colour STRING, kind STRING, place STRUCT<city: STRING, zip_code: BIGINT>"
    )
    assert ddl_of_class(Model) == (
        "ad STRING, n BIGINT, `odd name` STRING, "
        "place ARRAY<STRUCT<city: STRING, zip_code: BIGINT>>"
    )
    for wrong in (int, type("X", (), {})):
        with pytest.raises(SchemaProblem):
            ddl_of_class(wrong)


def test_ddl_of_classes_is_what_spark_reads(spark):
    from pyspark.sql.types import StructType

    for given in (Click, Model):
        read = StructType.fromDDL(ddl_of_class(given))
        assert StructType.fromDDL(ddl_of_json(json.loads(read.json()))) == read


def test_every_way_to_give_a_schema_makes_the_same_model(tmp_path, spark):
    from pyspark.sql.types import StructType

    @dataclasses.dataclass
    class Row:
        ad: str
        n: int

    (tmp_path / "row.json").write_text(StructType.fromDDL("ad STRING, n BIGINT").json())
    text = "streams:\n  s: {format: text, path: in, decode: {format: json, schema: %s}}\n"
    text += "tables:\n  t: {query: SELECT * FROM s}\n"
    made = []
    for given in ('"ad STRING, n BIGINT"', "row.json"):
        (tmp_path / "p.yaml").write_text(text % given)
        made.append(open_pipeline(str(tmp_path / "p.yaml")).streams[0])
    p = et.Pipeline("p")
    p.stream("s", format="text", path="in", decode=et.json(Row))
    p.table("t", sql="SELECT * FROM s")
    made.append(p.model.streams[0])
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize(
    ("decode", "code", "said"),
    [
        ("{format: json, schema: gone.json}", "SCHEMA_INVALID", "gone.json"),
        ("{format: json, schema: broken.json}", "SCHEMA_INVALID", "no JSON"),
        ("{format: json, schema: other.json}", "SCHEMA_INVALID", "df.schema.json()"),
        ("{format: avro, schema: 'ad STRING'}", "SCHEMA_INVALID", "JSON"),
        ("{format: avro, schema: other.json}", "SCHEMA_INVALID", ""),
        ("{format: avro}", "KEY_MISSING", "schema"),
        ("{format: text, schema: 'a INT'}", "SCHEMA_MISPLACED", "text"),
        ("{format: json, schema: 'a INT', registry_ids: [7]}", "KEY_MISPLACED", "registry_ids"),
        ("{format: protobuf}", "VALUE_INVALID", "avro"),
    ],
)
def test_a_schema_that_is_none_is_said_before_the_start(tmp_path, decode, code, said):
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text('{"type": "object"}')
    (tmp_path / "p.yaml").write_text(
        f"streams:\n  s: {{format: text, path: in, decode: {decode}}}\n"
        "tables:\n  t: {query: SELECT * FROM s}\n"
    )
    with pytest.raises(EvertableError) as e:
        open_pipeline(str(tmp_path / "p.yaml"))
    finding = e.value.findings[0]
    assert finding.code == code
    assert finding.place is not None
    assert finding.place.line == 2
    assert said in f"{finding.message} {finding.hint}"


def test_the_python_door_decodes_avro(kit, kafka):
    topic = kafka.topic("a")
    kafka.produce(topic, wire(7, avro(AD, ad="a", n=1)))
    p = et.Pipeline("p", storage=str(kit.folder / ".evertable"))
    p.stream(
        "s", format="kafka",
        options={
            "kafka.bootstrap.servers": kafka.address, "subscribe": topic,
            "startingOffsets": "earliest",
        },
        decode=et.avro(json.dumps(AD), registry_ids=[7]),
    )  # fmt: skip
    p.table("t", sql="SELECT ad, n FROM s", trigger=et.available_now())
    p.start(spark=kit.spark)
    p.wait()
    assert p.table("t").rows() == [{"ad": "a", "n": 1}]
