"""The embedded sink's own: types without a JVM, rows that grow old, a log that stays small."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import sqlite3

import pyarrow as pa
import pytest

import evertable as et
from evertable.errors import EvertableError
from evertable.model.pipeline import Query, Retain, Table
from evertable.sinks.embedded.arrow import to_arrow
from evertable.sinks.embedded.columns import Column
from evertable.sinks.embedded.ledger import connect
from evertable.sinks.embedded.upkeep import Aging, Upkeep

UTC = dt.UTC


def pipeline(kit, query, more="", schema="k STRING, at TIMESTAMP"):
    return kit.yaml(f"""
name: p
streams:
  s:
    format: json
    path: in
    schema: "{schema}"
    watermark: {{column: at, delay: 1 minute}}
    options: {{maxFilesPerTrigger: 1}}
tables:
  t:
    query: |
      {query}
    trigger: available_now
{more}""")


def file_of(kit):
    return str(kit.folder / ".evertable/p/tables/t.sqlite")


def test_arrow_and_pandas_have_sparks_types_without_spark(kit):
    kit.feed("in", '{"k":"a","at":"2026-01-31T12:00:00.000001Z"}', '{"k":null,"at":null}')
    query = """SELECT k, at, CAST(1 AS TINYINT) AS tiny, CAST(2 AS SMALLINT) AS small, 3 AS whole,
        4L AS long, CAST(0.5 AS FLOAT) AS f, double('NaN') AS d, k IS NULL AS none,
        CAST('12345678901234567.89' AS DECIMAL(20,2)) AS exact, DATE'2026-01-31' AS day,
        TIMESTAMP_NTZ'2026-01-31 12:00:00' AS local, unhex('00FF') AS bytes,
        named_struct('x', 1) AS nested FROM s"""
    kit.run(pipeline(kit, query.replace("\n", "\n      ")))
    found = to_arrow(file_of(kit), "t")
    assert {f.name: str(f.type) for f in found.schema} == {
        "k": "string", "at": "timestamp[us, tz=UTC]", "tiny": "int8", "small": "int16",
        "whole": "int32", "long": "int64", "f": "float", "d": "double", "none": "bool",
        "exact": "decimal128(20, 2)", "day": "date32[day]", "local": "timestamp[us]",
        "bytes": "binary", "nested": "string",
    }  # fmt: skip
    first = found.to_pylist()[0]
    assert first["at"] == dt.datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
    assert first["exact"] == decimal.Decimal("12345678901234567.89")
    assert (first["d"] != first["d"], first["none"], first["bytes"]) == (True, False, b"\x00\xff")
    assert first["nested"] == '{"x":1}'
    frame = found.to_pandas()
    assert str(frame["at"].dtype) == "datetime64[us, UTC]"
    assert frame["k"].isna().tolist() == [False, True]


def test_a_handle_gives_arrow(kit):
    kit.feed("in", '{"k":"a","n":1}')
    p = et.Pipeline("p", storage=str(kit.folder / "kept"))
    p.stream("s", format="json", path=str(kit.folder / "in"), schema="k STRING, n INT")
    p.table("t", sql="SELECT k, n FROM s", trigger=et.available_now())
    p.start(spark=kit.spark).wait()
    assert p.table("t").to_arrow() == pa.table({"k": ["a"], "n": pa.array([1], pa.int32())})
    assert p.table("t").to_pandas().to_dict("records") == [{"k": "a", "n": 1}]


def at(hour, key="k"):
    return f'{{"k":"{key}","at":"2026-01-01T{hour:02}:00:00Z"}}'


def test_old_rows_are_removed_by_the_newest_event(kit):
    """The clock is years ahead: what counts is how far the stream itself is."""
    kit.feed("in", at(1), at(2))
    kit.feed("in", at(10), '{"k":"no time","at":null}')
    p = pipeline(kit, "SELECT k, at FROM s", "    retain: 3 hours")
    kit.run(p)
    hours = [row[1].hour if row[1] else None for row in kit.rows("t")]
    assert sorted(hours, key=str) == [10, None]
    kit.feed("in", at(12))
    kit.run(p)
    kit.feed("in", at(14))
    kit.run(p)
    assert sorted((r[1].hour for r in kit.rows("t") if r[1]), key=str) == [12, 14]


def test_windows_grow_old_by_their_end(kit):
    kit.feed("in", at(1), at(5))
    query = "SELECT window(at, '1 hour') AS w, count(*) AS n FROM s GROUP BY 1"
    kit.run(pipeline(kit, query, "    output_mode: update\n    retain: 2 hours"))
    kit.feed("in", at(6))
    kit.run(pipeline(kit, query, "    output_mode: update\n    retain: 2 hours"))
    assert [row[0].hour for row in kit.rows("t", "w_start")] == [5, 6]


def test_the_space_of_old_rows_is_given_back(tmp_path):
    file = str(tmp_path / "t.sqlite")
    connection = connect(file)
    connection.execute("CREATE TABLE t (at TIMESTAMP_TEXT, filler TEXT)")
    table = Table(name="t", query=Query(sql=""))
    aging = Aging(Column("at", "TIMESTAMP_TEXT", "at"), Retain(age="1 hour"))
    now = dt.datetime(2026, 1, 1, 12, tzinfo=UTC)
    upkeep = Upkeep(connection, file, table, aging, clock=lambda: now)
    upkeep.make()
    rows = [("2026-01-01 10:00:00", "x" * 500)] * 20_000 + [("2026-01-01 12:30:00", "new")]
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    (before,) = connection.execute("PRAGMA page_count").fetchone()
    assert list(upkeep.run()) == []
    assert connection.execute("SELECT filler FROM t").fetchall() == [("new",)]
    (after,) = connection.execute("PRAGMA page_count").fetchone()
    assert after < before / 20
    connection.close()


@pytest.mark.parametrize(
    ("query", "more", "says"),
    [
        ("SELECT k FROM s", "7 days", "no time column"),
        ("SELECT k, at FROM s", "{age: 7 days, by: k}", "no time column of it"),
        (
            "SELECT k, date_trunc('day', at) AS a, date_trunc('hour', at) AS b FROM s",
            "7 days",
            "several time columns",
        ),
    ],
)
def test_how_rows_grow_old_has_to_be_plain(kit, query, more, says):
    kit.feed("in", at(1))
    with pytest.raises(EvertableError, match="RETAIN_COLUMN") as refused:
        kit.run(pipeline(kit, query, f"    retain: {more}"))
    assert says in refused.value.findings[0].message


def test_a_log_that_readers_hold_is_told_of_once(tmp_path):
    file = str(tmp_path / "t.sqlite")
    connection = connect(file)
    connection.execute("CREATE TABLE t (x)")
    upkeep = Upkeep(connection, file, Table(name="t", query=Query(sql="")), None, most_log=100_000)
    upkeep.make()
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM t").fetchall()
    said = []
    for _ in range(20):
        connection.execute("INSERT INTO t VALUES (?)", ("x" * 15_000,))
        said += upkeep.run()
    assert [(f.code, f.severity) for f in said[:1]] == [("LOG_LARGE", "warning")]
    assert len(said) <= 3  # not with every batch: when it has doubled
    reader.close()
    list(upkeep.run())
    assert os.path.getsize(f"{file}-wal") == 0
    connection.close()
