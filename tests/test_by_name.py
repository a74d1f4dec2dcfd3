"""Sources and sinks by name: catalog tables, data sources and writers of the user's, any format."""

from __future__ import annotations

import json
import sys

import pytest

import evertable as et
from evertable.errors import EvertableError
from evertable.run.runner import Runner
from kit import Failed, wait_for

CODE = '''
import json
import os

from pyspark.sql.datasource import (
    DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter,
    SimpleDataSourceStreamReader, WriterCommitMessage,
)

from beside import CITIES


class Reader(SimpleDataSourceStreamReader):
    def __init__(self, step):
        self.step = step

    def initialOffset(self):
        return {"at": 0}

    def read(self, start):
        end = min(start["at"] + self.step, len(CITIES))
        return iter([(i, CITIES[i]) for i in range(start["at"], end)]), {"at": end}

    def readBetweenOffsets(self, start, end):
        return iter([(i, CITIES[i]) for i in range(start["at"], end["at"])])


class AtOnce(DataSourceReader):
    def read(self, partition):
        yield from enumerate(CITIES)


class Cities(DataSource):
    """A source that is asked for rows from one offset to another."""

    @classmethod
    def name(cls):
        return "cities"

    def schema(self):
        return "id INT, city STRING"

    def simpleStreamReader(self, schema):
        return Reader(int(self.options.get("step", "2")))

    def reader(self, schema):
        return AtOnce()


class Lines(DataSourceStreamWriter):
    def __init__(self, folder):
        self.folder = folder

    def write(self, rows):
        return Written([r.asDict() for r in rows])

    def commit(self, messages, batch):
        rows = [r for m in messages if m for r in m.rows]
        with open(os.path.join(self.folder, f"{batch}.json"), "w") as file:
            json.dump(rows, file)

    def abort(self, messages, batch):
        pass


class Written(WriterCommitMessage):
    def __init__(self, rows):
        self.rows = rows


class Target(DataSource):
    @classmethod
    def name(cls):
        return "lines"

    def streamWriter(self, schema, overwrite):
        return Lines(self.options["folder"])


class Writer:
    """Rows one by one, into a file a partition and batch."""

    def open(self, partition, batch):
        self.file = open(f"FOLDER/rows-{partition}-{batch}", "a")
        return True

    def process(self, row):
        self.file.write(f"{row.id} {row.city}\\n")

    def close(self, error):
        self.file.write(f"closed {error}\\n")
        self.file.close()


class Broken:
    def process(self, row):
        raise ValueError(row.city)


def not_a_source():
    pass
'''
SCHEMA = "id INT, city STRING"
CITIES = [(0, "Oslo"), (1, "Rome"), (2, "Kyiv"), (3, "Lima"), (4, "Bonn")]


@pytest.fixture
def code(kit):
    kit.write("work.py", CODE.replace("FOLDER", str(kit.folder)))
    kit.write("beside.py", f"CITIES = {[city for _, city in CITIES]}\n")
    for n, (id, city) in enumerate(CITIES):
        kit.feed("in", f'{{"id":{id},"city":"{city}"}}')
        assert n == id
    yield kit
    for name in ("work", "beside"):
        sys.modules.pop(name, None)


def files(sink, *, query="SELECT id, city FROM s", mode="append", more=""):
    return f"""
name: p
streams:
  s: {{format: json, path: in, schema: "{SCHEMA}", options: {{maxFilesPerTrigger: 2}}}}
tables:
  t:
    query: {query}
    output_mode: {mode}
    trigger: available_now
    sink: {sink}
{more}
"""


def test_a_data_source_of_the_users_as_a_stream_and_as_a_static(code):
    model = code.yaml("""
name: p
streams:
  s: {format: python, options: {class: "work.py:Cities", step: 3}}
statics:
  all: {format: python, options: {class: "work.py:Cities"}}
tables:
  t:
    query: SELECT s.id, all.city FROM s JOIN all USING (id)
    trigger: {processing_time: 50 milliseconds}
""")
    runner = Runner(model, spark=code.spark, emit=code.events.append)
    runner.start()
    try:
        wait_for(lambda: runner.runs[0].ended() or len(rows_or_none(code)) == 5)
    finally:
        runner.stop()
    assert [r.finding for r in runner.failed()] == []
    assert code.rows("t") == CITIES


def rows_or_none(kit):
    try:
        return kit.rows("t")
    except EvertableError:
        return []


def test_a_class_that_is_no_data_source_is_refused(code):
    model = code.yaml("""
name: p
streams:
  s: {format: python, options: {class: "work.py:not_a_source"}}
tables:
  t: {query: SELECT * FROM s}
""")
    with pytest.raises(EvertableError) as e:
        code.run(model)
    (finding,) = e.value.findings
    assert (finding.code, finding.place.line) == ("SOURCE_INVALID", 3)


def test_a_data_source_of_the_users_as_a_sink(code):
    (code.folder / "out").mkdir()
    sink = f'{{format: python, class: "work.py:Target", folder: {code.folder / "out"}}}'
    code.run(code.yaml(files(sink)))
    batches = [json.loads(p.read_text()) for p in sorted((code.folder / "out").iterdir())]
    assert [(r["id"], r["city"]) for batch in batches for r in batch] == CITIES
    assert len(batches) == 3


def test_a_row_writer(code):
    code.run(code.yaml(files('{format: python, call: "work.py:Writer"}')))
    lines = [line for p in code.folder.glob("rows-*") for line in p.read_text().splitlines()]
    assert sorted(line for line in lines if "closed" not in line) == [f"{i} {c}" for i, c in CITIES]
    assert {line for line in lines if "closed" in line} == {"closed None"}
    assert {p.name.split("-")[2] for p in code.folder.glob("rows-*")} == {"0", "1", "2"}


def test_a_row_writer_that_fails_is_the_users_own_line(code):
    with pytest.raises(Failed, match="USER_CODE_FAILED") as e:
        code.run(code.yaml(files('{format: python, call: "work.py:Broken"}')))
    text = (code.folder / "work.py").read_text().splitlines()
    assert text[e.value.finding.place.line - 1].strip() == "raise ValueError(row.city)"


def test_row_writers_and_data_sources_by_the_python_door(code, monkeypatch):
    monkeypatch.syspath_prepend(str(code.folder))
    import work

    (code.folder / "out").mkdir()
    p = et.Pipeline("p", storage=str(code.folder / ".evertable"))
    p.stream("s", format="json", path=str(code.folder / "in"), schema=SCHEMA)
    p.stream("cities", format=work.Cities, options={"step": 5})
    now = et.available_now()
    p.table("rows", sql="SELECT * FROM s", trigger=now, sink=et.call(work.Writer))
    out = str(code.folder / "out")
    p.table(
        "source", sql="SELECT * FROM s", trigger=now, sink=et.data_source(work.Target, folder=out)
    )
    p.table("all", sql="SELECT * FROM cities", sink=et.call(work.Writer()))
    yaml = code.yaml(f"""
name: p
storage: {code.folder / ".evertable"}
streams:
  s: {{format: json, path: {code.folder / "in"}, schema: "{SCHEMA}"}}
  cities: {{format: python, options: {{class: "work.py:Cities", step: 5}}}}
tables:
  rows:
    query: SELECT * FROM s
    trigger: available_now
    sink: {{format: python, call: "work.py:Writer"}}
  source:
    query: SELECT * FROM s
    trigger: available_now
    sink: {{format: python, class: "work.py:Target", folder: {out}}}
  all: {{query: SELECT * FROM cities, sink: {{format: python, call: "work.py:Writer"}}}}
""")
    assert p.checked() == yaml
    p.start(only=["rows", "source"], spark=code.spark)
    p.wait()
    assert len(list(code.folder.glob("rows-*"))) >= 1
    assert len(list((code.folder / "out").iterdir())) == 1


def test_catalog_tables_as_source_static_and_sink(code):
    spark = code.spark
    where = str(code.folder / "catalog")
    for name in ("cities", "more", "copied"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE cities ({SCHEMA}) USING parquet LOCATION '{where}'")
    spark.sql("INSERT INTO cities VALUES (0, 'Oslo'), (1, 'Rome')")
    spark.sql(f"CREATE TABLE more (id INT, n INT) USING parquet LOCATION '{where}-more'")
    spark.sql("INSERT INTO more VALUES (0, 10), (1, 11)")
    model = code.yaml(f"""
name: p
streams:
  s: {{format: table, options: {{table: cities}}}}
statics:
  more: {{format: table, options: {{table: more}}}}
tables:
  t: {{query: "SELECT id, city, n FROM s JOIN more USING (id)", trigger: available_now}}
  u:
    query: SELECT id, city FROM s
    trigger: available_now
    sink: {{format: table, table: copied, path: {code.folder / "copied"}}}
""")
    code.run(model)
    spark.sql("INSERT INTO cities VALUES (1, 'again')")
    code.run(model)
    assert code.rows("t") == [(0, "Oslo", 10), (1, "Rome", 11), (1, "again", 11)]
    copied = sorted(tuple(r) for r in spark.table("copied").collect())
    assert copied == [(0, "Oslo"), (1, "Rome"), (1, "again")]


def test_any_other_format_is_sparks_own_business(code):
    """binaryFile and a class name: neither is known here, both are known to Spark."""
    json_class = "org.apache.spark.sql.execution.datasources.json.JsonFileFormat"
    model = code.yaml(f"""
name: p
streams:
  s:
    format: binaryFile
    options: {{path: {code.folder / "in"}, pathGlobFilter: "*.txt"}}
    schema: "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
tables:
  t:
    query: SELECT CAST(content AS STRING) AS text FROM s
    trigger: available_now
    sink: {{format: {json_class}, path: {code.folder / "out"}}}
""")
    code.run(model)
    texts = [json.loads(r.text) for r in code.spark.read.json(str(code.folder / "out")).collect()]
    assert sorted((t["id"], t["city"]) for t in texts) == CITIES


def test_a_format_that_spark_does_not_know_either(code):
    with pytest.raises(EvertableError) as e:
        code.run(code.yaml(files("noop").replace("format: json", "format: hudi")))
    (finding,) = e.value.findings
    assert finding.code == "CONNECTOR_MISSING"
    assert finding.place.line == 3


SEVERAL = """
      - embedded
      - {format: parquet, path: out}
      - {format: python, call: "work.py:Writer"}
      - {format: kafka, kafka.bootstrap.servers: "ADDRESS", topic: TOPIC}
"""


def test_several_sinks_get_the_same_rows_computed_once(code, kafka):
    topic = kafka.topic("out")
    query = "SELECT id, city, CAST(uuid() AS STRING) AS once FROM s"
    code.run(code.yaml(files(SEVERAL.replace(
        '      - {format: kafka, kafka.bootstrap.servers: "ADDRESS", topic: TOPIC}\n', ""),
        query=query)))  # fmt: skip
    embedded = code.rows("t")
    in_files = code.spark.read.parquet(str(code.folder / "out")).collect()
    assert sorted(tuple(r) for r in in_files) == embedded, "one uuid a row: computed once"
    assert [r[:2] for r in embedded] == CITIES
    lines = [line for p in code.folder.glob("rows-*") for line in p.read_text().splitlines()]
    assert len([line for line in lines if "closed" not in line]) == 5
    more = SEVERAL.replace("ADDRESS", kafka.address).replace("TOPIC", topic)
    more = more.replace('      - {format: python, call: "work.py:Writer"}\n', "")
    text = files(more, query="SELECT city AS value FROM s").replace("name: p", "name: q")
    code.run(code.yaml(text.replace("path: out", "path: out2")))
    assert sorted(m.value().decode() for m in kafka.consume(topic, 5)) == sorted(
        city for _, city in CITIES
    )


def test_a_sink_that_fails_does_not_double_the_rows_of_the_other(code):
    kit = code
    kit.write(
        "work2.py",
        """
        import os
        def send(rows, batch):
            kept = rows.collect()
            if batch == 1 and not os.path.exists("up"):
                raise OSError("down")
    """,
    )
    sink = """
      - embedded
      - {format: parquet, path: out}
      - {format: python, call: "work2.py:send"}
"""
    model = kit.yaml(files(sink))
    for _ in range(2):
        with pytest.raises(Failed, match="down"):
            kit.run(model)
    assert len(kit.rows("t")) == 4, "batch 1 is in the sinks that took it, once"
    (kit.folder / "up").touch()
    kit.run(model)
    assert kit.rows("t") == CITIES
    found = kit.spark.read.parquet(str(kit.folder / "out")).collect()
    assert sorted(tuple(r) for r in found) == CITIES


@pytest.mark.parametrize(
    ("sink", "code_", "line"),
    [
        ("[]", "KEY_MISSING", 5),
        ("[embedded, memory]", "SINK_ALONE", 9),
        ("[embedded, embedded]", "SINK_TWICE", 9),
        ("[embedded, {format: jsn, path: x}]", "FORMAT_UNKNOWN", 9),
        ("[embedded, {format: json, pathh: x}]", "OPTION_UNKNOWN", 9),
        ("[embedded, {formt: json}]", "OPTION_UNKNOWN", 9),
        ('{format: python, call: "a.py:f", class: "a.py:C"}', "OPTIONS_EXCLUDE", 9),
        ("{format: python}", "OPTION_MISSING", 9),
    ],
)  # fmt: skip
def test_wrong_lists_of_sinks(code, sink, code_, line):
    with pytest.raises(EvertableError) as e:
        code.yaml(files(sink))
    found = [(f.code, f.place.line) for f in e.value.findings]
    assert (code_, line) in found, e.value.findings
