"""What only the Python door has: starting and stopping from a notebook, reading, a script."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import evertable as et
from evertable.project import open_pipeline


def define(folder, trigger=None, sink=None):
    p = et.Pipeline("p", storage=str(folder / ".evertable"))
    p.stream("s", format="rate", options={"rowsPerSecond": 100})
    keys = {k: v for k, v in {"trigger": trigger, "sink": sink}.items() if v}

    @p.table(**keys)
    def t(s):
        return s.select("value")

    return p


def test_a_notebook_cell_starts_reads_and_stops_at_a_batch_boundary(kit):
    p = define(kit.folder)
    begun = time.monotonic()
    p.start(spark=kit.spark)
    assert time.monotonic() - begun < 5
    assert p.running
    with pytest.raises(et.EvertableError, match="ALREADY_RUNNING"):
        p.start(spark=kit.spark)
    wait_for_rows(p, 10)
    stopped = p.stop()
    assert not p.running
    assert [s.delivered for s in stopped] == [True]
    values = sorted(row["value"] for row in p.table("t").rows())
    assert values == list(range(len(values)))

    p.start(spark=kit.spark)  # and goes on where it stopped
    wait_for_rows(p, len(values) + 1)
    p.stop()
    after = sorted(p.table("t").to_pandas()["value"])
    assert after == list(range(len(after)))
    assert len(after) > len(values)


def wait_for_rows(p, number):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if len(p.table("t").rows()) >= number:
                return
        except et.EvertableError:
            pass  # no batch yet
        time.sleep(0.05)
    raise AssertionError("no rows came")


def test_a_memory_table_is_read_while_it_runs(kit):
    p = define(kit.folder, sink="memory")
    p.start(spark=kit.spark)
    wait_for_rows(p, 5)
    p.stop()


def test_wait_raises_what_ended_a_table(kit):
    def fail(batch, number):
        batch.collect()
        raise RuntimeError("not today")

    p = define(kit.folder, sink=et.call(fail))
    p.start(spark=kit.spark)
    with pytest.raises(et.EvertableError, match="not today"):
        p.wait(60)


def test_all_problems_of_a_python_pipeline_at_once_with_their_lines():
    p = et.Pipeline("p")
    p.stream("s", format="rate", watermark=("timestamp", "soon"))
    p.stream("r", format="rate", options={"rowsPerSec": 1})

    @p.table(output_mode="append")
    def t(r, s, rr):
        return r

    with pytest.raises(et.EvertableError) as e:
        p.checked()
    codes = [f.code for f in e.value.findings]
    # "s" is wrong, but not unknown; "rr" is
    assert codes == ["VALUE_INVALID", "OPTION_UNKNOWN", "NAME_UNKNOWN"]
    assert all(f.place.file == __file__ for f in e.value.findings)
    assert [f.hint for f in e.value.findings[1:]] == [
        'did you mean "rowsPerSecond"?',
        'did you mean "r"?',
    ]


BOTH_WRONG = {
    "p.yaml": """name: a-b
streams:
  s: {format: rate, watermark: {column: timestamp, delay: soon}}
  r: {format: rate, options: {rowsPerSec: 1}}
tables:
  t: {query: SELECT * FROM r, sink: {format: parket, path: out}}
  u: {query: SELECT * FROM s, output_mode: update, sink: {format: json, path: out}}
  U: {query: SELECT * FROM s}
""",
    "p.py": """import evertable as et
p = et.Pipeline("a-b")
p.stream("s", format="rate", watermark=("timestamp", "soon"))
p.stream("r", format="rate", options={"rowsPerSec": 1})
p.table("t", sql="SELECT * FROM r", sink=et.files("parket", "out"))
p.table("u", sql="SELECT * FROM s", output_mode="update", sink=et.files("json", "out"))
p.table("U", sql="SELECT * FROM s")
""",
}


# where each file has the mistakes of the same names
WRONG_LINES = {"p.yaml": [1, 3, 4, 6, 7, 8], "p.py": [2, 3, 4, 5, 6, 7]}


@pytest.mark.parametrize("file", BOTH_WRONG)
def test_both_doors_find_the_same_in_the_same_faulty_pipeline(tmp_path, file):
    (tmp_path / file).write_text(BOTH_WRONG[file])
    with pytest.raises(et.EvertableError) as e:
        open_pipeline(str(tmp_path / file))
    assert [f.code for f in e.value.findings] == [
        "VALUE_INVALID",
        "VALUE_INVALID",
        "OPTION_UNKNOWN",
        "FORMAT_UNKNOWN",
        "SINK_MODE",
        "NAME_TWICE",
    ]
    assert [f.place.line for f in e.value.findings] == WRONG_LINES[file]
    assert e.value.exit_code == 2


SCRIPT = """
import evertable as et

p = et.Pipeline("p", spark={"master": "local[2]"})
p.stream("s", format="text", path="in")
p.table("t", sql="SELECT value FROM s", trigger=et.available_now())

if __name__ == "__main__":
    p.run()
"""


@pytest.mark.long
@pytest.mark.parametrize("command", [["pipeline.py"], ["-m", "evertable", "run", "pipeline.py"]])
def test_a_script_runs_by_python_and_by_evertable_run(tmp_path, command):
    (tmp_path / "pipeline.py").write_text(SCRIPT)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1").write_text("hello\n")
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "t finished" in done.stdout
    answer = subprocess.run(
        [sys.executable, "-m", "evertable", "query", "SELECT * FROM t", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert answer.stdout == '[{"value": "hello"}]\n'


SOURCES = {
    "text": ({"format": "text"}, "a\n", "a"),
    "csv": (
        {"format": "csv", "schema": "value STRING", "options": {"header": True}},
        "value\na\n",
        "a",
    ),
    "json": ({"format": "json", "schema": "value STRING"}, '{"value":"a"}\n', "a"),
    "xml": (
        {"format": "xml", "schema": "value STRING", "options": {"rowTag": "r"}},
        "<x><r><value>a</value></r></x>",
        "a",
    ),
    "decoded": ({"format": "text", "decode": et.json("value STRING")}, '{"value":"a"}\n', "a"),
    "inferred": ({"format": "json"}, '{"value":"a"}\n', "a"),
    "deduplicated": ({"format": "text", "dedup": et.Dedup(keys=("value",))}, "a\na\n", "a"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_file_source(kit, name):
    keys, text, expected = SOURCES[name]
    kit.write("in/1", text)
    p = et.Pipeline("p", storage=str(kit.folder / "st"))
    p.stream("s", path=str(kit.folder / "in"), **keys)
    p.table("t", sql="SELECT value FROM s", trigger=et.available_now())
    p.start(spark=kit.spark).wait(60)
    assert p.table("t").rows() == [{"value": expected}]


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
def test_columnar_sources_and_sinks(kit, format):
    kit.spark.sql("SELECT 'a' AS value").write.format(format).save(str(kit.folder / "in"))
    p = et.Pipeline("p", storage=str(kit.folder / "st"))
    p.stream("s", format=format, path=str(kit.folder / "in"), schema="value STRING")
    p.table(
        "t",
        sql="SELECT value FROM s",
        trigger=et.once(),
        sink=et.files(format, str(kit.folder / "out")),
    )
    p.start(spark=kit.spark).wait(60)
    read = kit.spark.read.format(format).load(str(kit.folder / "out"))
    assert [tuple(row) for row in read.collect()] == [("a",)]


@pytest.mark.parametrize("sink", ["files", "console", "memory", "noop", "call", "embedded"])
def test_every_sink(kit, sink, capsys):
    got, batches = [], []

    def keep(batch, number):
        got.extend(row["value"] for row in batch.collect())

    sinks = {"files": et.files("json", str(kit.folder / "out")), "call": et.call(keep)}
    kit.write("in/1", "a\n")
    p = et.Pipeline("p", storage=str(kit.folder / "st"))
    p.stream("s", format="text", path=str(kit.folder / "in"))
    p.table("t", sql="SELECT value FROM s", trigger=et.once(), sink=sinks.get(sink, sink))
    p.listen(progress=batches.append)
    p.start(spark=kit.spark).wait(60)
    assert [batch.rows_in for batch in batches] == [1]
    assert (kit.folder / "st/p/checkpoints/t/commits/0").exists() == (sink != "memory")
    shown = capsys.readouterr().out
    assert shown == ("t, batch 0: 1 row\nvalue\na\n" if sink == "console" else "")
    if sink in ("memory", "embedded"):
        assert p.table("t").rows() == [{"value": "a"}]
    elif sink == "call":
        assert got == ["a"]
    elif sink == "files":
        assert kit.spark.read.json(str(kit.folder / "out")).collect()[0]["value"] == "a"


def test_a_table_without_brackets_and_partitions_and_a_key(kit):
    kit.write("in/1", '{"k":"a","n":1}\n{"k":"b","n":2}\n')
    p = et.Pipeline("p", storage=str(kit.folder / "st"))
    p.stream("s", format="json", path=str(kit.folder / "in"), schema="k STRING, n INT")

    @p.table
    def plain(s):
        return s.select("k")

    @p.table(partition_by="k", sink=et.files("json", str(kit.folder / "out")), trigger=et.once())
    def parts(s):
        return s

    @p.table(output_mode="update", key="k", trigger=et.once())
    def newest(s):
        return s

    assert [t.name for t in p.checked().tables] == ["plain", "parts", "newest"]
    p.start(only=["parts", "newest"], spark=kit.spark).wait(60)
    assert (kit.folder / "out/k=a").is_dir()
    assert sorted(r["n"] for r in p.table("newest").rows()) == [1, 2]
