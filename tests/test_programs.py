"""Programs as they are found in the wild, rewritten as pipelines."""

from __future__ import annotations

import datetime as dt

UTC = dt.UTC


def test_word_count(kit):
    kit.feed("in", "to be or not to be")
    p = kit.yaml("""
name: p
streams:
  lines: {format: text, path: in}
views:
  words: SELECT explode(split(value, ' ')) AS word FROM lines
tables:
  counts:
    query: SELECT word, count(*) AS n FROM words GROUP BY word
    output_mode: complete
    trigger: available_now
""")
    kit.run(p)
    assert kit.rows("counts") == [("be", 2), ("not", 1), ("or", 1), ("to", 2)]


def test_regular_expressions_over_a_web_log(kit):
    kit.feed(
        "in",
        '1.2.3.4 - - [31/Jan/2026:12:00:01 +0000] "GET /a HTTP/1.1" 200 512',
        '1.2.3.4 - - [31/Jan/2026:12:00:09 +0000] "GET /b HTTP/1.1" 500 0',
        "not a line of the log",
    )
    p = kit.yaml(r"""
name: p
streams:
  log: {format: text, path: in}
views:
  requests: |
    SELECT regexp_extract(value, '^(\\S+)', 1) AS host,
           try_to_timestamp(regexp_extract(value, '\\[([^\\]]+)\\]', 1),
                            'dd/MMM/yyyy:HH:mm:ss Z') AS at,
           regexp_extract(value, '"\\w+ (\\S+)', 1) AS path,
           try_cast(regexp_extract(value, '" (\\d{3}) ', 1) AS INT) AS status
    FROM log
tables:
  errors:
    query: SELECT host, path, at FROM requests WHERE status >= 500
    trigger: available_now
  per_status:
    query: SELECT status, count(*) AS n FROM requests WHERE status IS NOT NULL GROUP BY status
    output_mode: update
    trigger: available_now
""")
    kit.run(p)
    at = dt.datetime(2026, 1, 31, 12, 0, 9, tzinfo=UTC)
    assert kit.rows("errors") == [("1.2.3.4", "/b", at)]
    assert kit.rows("per_status") == [(200, 1), (500, 1)]


def test_iot_windows_from_nested_json(kit):
    kit.feed(
        "in",
        '{"device":{"id":"d1"},"readings":[{"at":"2026-01-01T12:00:10Z","c":20.5},'
        '{"at":"2026-01-01T12:00:40Z","c":21.5}]}',
        '{"device":{"id":"d1"},"readings":[{"at":"2026-01-01T12:20:00Z","c":30}]}',
    )
    p = kit.yaml("""
name: p
streams:
  raw:
    format: json
    path: in
    schema: "device STRUCT<id: STRING>, readings ARRAY<STRUCT<at: TIMESTAMP, c: DOUBLE>>"
views:
  readings: |
    SELECT * FROM (
      SELECT id, r.at AS at, r.c AS c FROM
        (SELECT device.id AS id, explode(readings) AS r FROM raw)
    ) WATERMARK at DELAY OF INTERVAL 5 MINUTES
tables:
  per_minute:
    query: |
      SELECT id, window(at, '1 minute') AS w, avg(c) AS c FROM readings GROUP BY 1, 2
    output_mode: update
    trigger: available_now
""")
    kit.run(p)
    assert [(row[0], row[3]) for row in kit.rows("per_minute")] == [("d1", 21.0), ("d1", 30.0)]


def test_newest_version_of_each_row(kit):
    kit.feed("in", '{"id":1,"v":1,"name":"old"}', '{"id":2,"v":1,"name":"two"}')
    kit.feed("in", '{"id":1,"v":2,"name":"new"}')
    p = kit.yaml("""
name: p
streams:
  changes: {format: json, path: in, schema: "id INT, v INT, name STRING",
            options: {maxFilesPerTrigger: 1}}
tables:
  people:
    query: SELECT id, max_by(name, v) AS name FROM changes GROUP BY id
    output_mode: update
    trigger: available_now
""")
    kit.run(p)
    assert kit.rows("people") == [(1, "new"), (2, "two")]


def test_a_join_of_streams_then_a_window(kit):
    for minute in (1, 2, 40):
        kit.feed("shown", f'{{"ad":"a","shown_at":"2026-01-01T12:{minute:02}:00Z"}}')
        kit.feed("clicks", f'{{"ad":"a","at":"2026-01-01T12:{minute:02}:30Z"}}')
    p = kit.yaml("""
name: p
streams:
  shown: {format: json, path: shown, schema: "ad STRING, shown_at TIMESTAMP",
          watermark: {column: shown_at, delay: 1 minute}}
  clicks: {format: json, path: clicks, schema: "ad STRING, at TIMESTAMP",
           watermark: {column: at, delay: 1 minute}}
views:
  clicked: |
    SELECT s.ad, shown_at FROM shown s JOIN clicks c
      ON s.ad = c.ad AND at BETWEEN shown_at AND shown_at + INTERVAL 1 MINUTE
tables:
  per_window:
    query: SELECT window(shown_at, '10 minutes') AS w, count(*) AS n FROM clicked GROUP BY 1
    trigger: available_now
""")
    kit.run(p)
    assert [row[2] for row in kit.rows("per_window")] == [2]


SESSIONS = """
import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming import StatefulProcessor


def counted(key, frames, state):
    n = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((n,))
    yield pd.DataFrame({"user": [key[0]], "n": [n]})


def sessions(clicks):
    return clicks.groupBy("user").applyInPandasWithState(
        counted, "user STRING, n BIGINT", "n BIGINT", "update", GroupStateTimeout.NoTimeout
    )


class Counter(StatefulProcessor):
    def init(self, handle):
        self.seen = handle.getValueState("seen", "n BIGINT")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.seen.get()[0] if self.seen.exists() else 0) + sum(len(r) for r in rows)
        self.seen.update((n,))
        yield pd.DataFrame({"user": [key[0]], "n": [n]})

    def close(self):
        pass


def processed(clicks):
    return clicks.groupBy("user").transformWithStateInPandas(
        statefulProcessor=Counter(), outputStructType="user STRING, n BIGINT",
        outputMode="Update", timeMode="None",
    )


def upper(clicks):
    def shout(frames):
        for frame in frames:
            frame["user"] = frame["user"].str.upper()
            yield frame

    return clicks.mapInPandas(shout, "user STRING")
"""


def test_state_in_python(kit):
    """Functions and processors of a module beside the pipeline, in the workers' hands."""
    kit.write("sessions.py", SESSIONS)
    kit.feed("in", '{"user":"u1"}', '{"user":"u2"}')
    kit.feed("in", '{"user":"u1"}')
    p = kit.yaml("""
name: p
streams:
  clicks: {format: json, path: in, schema: "user STRING", options: {maxFilesPerTrigger: 1}}
tables:
  by_function:
    query: {python: "sessions.py:sessions"}
    output_mode: update
    key: user
    trigger: available_now
  by_processor:
    query: {python: "sessions.py:processed"}
    output_mode: update
    key: user
    trigger: available_now
  mapped: {query: {python: "sessions.py:upper"}, trigger: available_now}
""")
    kit.run(p)
    assert kit.rows("by_function") == [("u1", 2), ("u2", 1)]
    assert kit.rows("by_processor") == [("u1", 2), ("u2", 1)]
    assert kit.rows("mapped") == [("U1",), ("U1",), ("U2",)]


def test_several_queries_in_one_program_into_different_sinks(kit):
    kit.feed("in", '{"k":"a","n":1}', '{"k":"b","n":5}')
    p = kit.yaml("""
name: p
streams:
  s: {format: json, path: in, schema: "k STRING, n INT"}
tables:
  archive: {query: SELECT * FROM s, trigger: available_now, partition_by: [k],
            sink: {format: parquet, path: archive}}
  big: {query: SELECT * FROM s WHERE n > 3, trigger: available_now}
  totals: {query: "SELECT k, sum(n) AS n FROM s GROUP BY k", output_mode: update,
           trigger: available_now, sink: console}
""")
    kit.run(p)
    read = kit.spark.read.parquet(str(kit.folder / "archive")).select("k", "n")
    assert sorted(map(tuple, read.collect())) == [("a", 1), ("b", 5)]
    assert kit.rows("big") == [("b", 5)]
    assert [sorted(r["k"] for r in rows) for _, _, rows in kit.shown if rows] == [["a", "b"]]
