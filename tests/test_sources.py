"""Every kind of source, from YAML, with the rows it gives."""

from __future__ import annotations

import datetime as dt
import json
import socket
import threading

import pytest

from evertable.project import open_pipeline
from evertable.run.runner import Runner


def table(kit, stream, query="SELECT * FROM s", more=""):
    return kit.yaml(f"""
name: p
streams:
  s: {stream}
tables:
  t:
    query: {query}
    trigger: available_now
{more}""")


def test_text_files(kit):
    kit.feed("in", "hello", "world")
    kit.run(table(kit, "{format: text, path: in}"))
    assert kit.rows("t") == [("hello",), ("world",)]


def test_csv_files_with_a_header(kit):
    kit.feed("in", "ad,n", "a,1", "b,2")
    kit.run(
        table(kit, '{format: csv, path: in, schema: "ad STRING, n INT", options: {header: true}}')
    )
    assert kit.rows("t") == [("a", 1), ("b", 2)]


def test_nested_json(kit):
    kit.feed("in", '{"user":{"id":7,"tags":["x","y"]}}')
    kit.run(
        table(
            kit,
            '{format: json, path: in, schema: "user STRUCT<id: INT, tags: ARRAY<STRING>>"}',
            "SELECT user.id, explode(user.tags) AS tag FROM s",
        )
    )
    assert kit.rows("t") == [(7, "x"), (7, "y")]


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
def test_columnar_files(kit, format):
    kit.spark.range(3).write.format(format).save(str(kit.folder / "in"))
    kit.run(table(kit, f'{{format: {format}, path: in, schema: "id BIGINT"}}'))
    assert kit.rows("t") == [(0,), (1,), (2,)]


def test_xml_files(kit):
    kit.write("in/1.xml", "<rows><row><ad>a</ad><n>1</n></row><row><ad>b</ad><n>2</n></row></rows>")
    kit.run(
        table(kit, '{format: xml, path: in, schema: "ad STRING, n INT", options: {rowTag: row}}')
    )
    assert kit.rows("t") == [("a", 1), ("b", 2)]


def test_partition_folders_become_columns(kit):
    kit.feed("in/day=2026-01-01", '{"n":1}')
    kit.feed("in/day=2026-01-02", '{"n":2}')
    kit.run(table(kit, '{format: json, path: in, schema: "n INT, day DATE"}'))
    assert kit.rows("t") == [(1, dt.date(2026, 1, 1)), (2, dt.date(2026, 1, 2))]


def batches(kit):
    return [e.rows_in for e in kit.events if hasattr(e, "rows_in") and e.rows_in]


def test_max_files_per_trigger_cuts_batches(kit):
    for n in range(4):
        kit.feed("in", str(n))
    kit.run(table(kit, "{format: text, path: in, options: {maxFilesPerTrigger: 3}}"))
    assert batches(kit) == [3, 1]


def test_latest_first(kit):
    import os

    for n in range(3):
        kit.feed("in", str(n))
        os.utime(kit.folder / f"in/{n + 1:04}.txt", (1_000_000 + n, 1_000_000 + n))
    kit.run(
        table(
            kit,
            "{format: text, path: in, options: {maxFilesPerTrigger: 1, latestFirst: true}}",
            more="    sink: console",
        )
    )
    assert [rows[0]["value"] for _, _, rows in kit.shown] == ["2", "1", "0"]


def test_clean_source_deletes_what_was_read(kit):
    for n in range(3):
        kit.feed("in", str(n))
    p = table(
        kit, "{format: text, path: in, options: {maxFilesPerTrigger: 1, cleanSource: delete}}"
    )
    kit.run(p)
    kit.feed("in", "3")
    kit.run(p)
    left = {path.name for path in (kit.folder / "in").iterdir()}
    assert "0001.txt" not in left
    assert kit.rows("t") == [("0",), ("1",), ("2",), ("3",)]


def test_a_batch_has_a_cap_by_default(kit):
    """A first batch over a full folder must not exhaust memory."""
    from evertable.sources import SOURCES
    from evertable.spark.frames import Frames
    from evertable.spark.schemas import SchemaStore

    kit.feed("in", "x")
    p = table(kit, "{format: text, path: in}")
    frames = Frames(kit.spark, p, SOURCES, SchemaStore(str(kit.folder)))
    options = frames.options(p.streams[0], SOURCES["text"], "s")
    assert options["maxBytesPerTrigger"] == str(256 * 1024 * 1024)
    capped = table(kit, "{format: text, path: in, options: {maxFilesPerTrigger: 5}}")
    assert "maxBytesPerTrigger" not in frames.options(capped.streams[0], SOURCES["text"], "s")


def test_a_schema_is_inferred_once_and_kept(kit):
    kit.feed("in", '{"a":1}')
    p = table(kit, "{format: json, path: in}")
    kit.run(p)
    kit.feed("in", '{"a":2,"b":"new"}')  # a column that inference would now find
    kit.run(p)
    assert kit.rows("t") == [(1,), (2,)]
    kept = list((kit.folder / ".evertable/p/schemas").iterdir())
    assert [f["name"] for f in json.loads(kept[0].read_text())["fields"]] == ["a"]


def test_a_socket_and_decoding_of_its_lines(kit):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    p = table(
        kit,
        f"{{format: socket, options: {{host: 127.0.0.1, port: {port}}}, "
        'decode: {format: json, schema: "ad STRING, n INT"}}',
    )
    p = kit.yaml(kit.file.read_text().replace("available_now", "default"))

    def serve():
        client, _ = server.accept()
        client.sendall(b'{"ad":"a","n":1}\nno json\n{"ad":"b","n":2}\n')
        done.wait(60)
        client.close()

    done = threading.Event()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    runner = Runner(p, spark=kit.spark)
    runner.start()

    def stop_when_there():
        if (kit.folder / ".evertable/p/tables/t.sqlite").exists() and len(kit.rows("t")) == 3:
            runner.stop()

    runner.wait(stop_when_there)
    done.set()
    assert kit.rows("t") == [("a", 1), ("b", 2), (None, None)]


def test_decoding_csv_lines_and_keeping_other_columns(kit):
    kit.feed("in/day=1", "a,1")
    kit.run(
        table(kit, '{format: text, path: in, decode: {format: csv, schema: "ad STRING, n INT"}}')
    )
    assert kit.rows("t") == [("a", 1, 1)]


def test_a_bad_record_may_end_the_table(kit):
    kit.feed("in", "no json")
    p = table(
        kit,
        '{format: text, path: in, decode: {format: json, schema: "n INT"}, on_bad_record: fail}',
    )
    with pytest.raises(Exception, match="RECORD_INVALID"):
        kit.run(p)


def test_rate_micro_batch_gives_the_same_rows_each_time(kit):
    p = kit.yaml("""
name: p
streams:
  s: {format: rate-micro-batch, options: {rowsPerBatch: 5, startTimestamp: 0}}
tables:
  t: {query: "SELECT value FROM s", trigger: once}
""")
    kit.run(p)
    kit.run(p)
    assert kit.rows("t") == [(n,) for n in range(10)]


def test_rate_rows_arrive(kit):
    p = kit.yaml("""
name: p
streams:
  s: {format: rate, options: {rowsPerSecond: 50}}
tables:
  t: {query: "SELECT value FROM s"}
""")
    runner = Runner(p, spark=kit.spark)
    runner.start()
    file = kit.folder / ".evertable/p/tables/t.sqlite"
    runner.wait(lambda: file.exists() and len(kit.rows("t")) >= 20 and runner.stop())
    values = [v for (v,) in kit.rows("t", "value")]
    assert sorted(values) == list(range(len(values)))


def test_a_static_table_is_no_stream(kit):
    kit.write("a.csv", "1\n")
    p = kit.yaml("""
name: p
statics:
  a: {format: csv, path: a.csv, schema: "n INT"}
tables:
  t: {query: "SELECT * FROM a"}
""")
    with pytest.raises(Exception, match="NOT_STREAMING"):
        kit.run(p)


def test_relative_paths_start_from_the_pipelines_folder(kit, tmp_path, monkeypatch):
    kit.feed("in", "x")
    table(kit, "{format: text, path: in}")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    kit.run(open_pipeline("../p.yaml"))
    assert kit.rows("t") == [("x",)]
    assert not (elsewhere / ".evertable").exists()
