"""Sinks of the user's: a class with the methods of the seam, a function with a ledger kept here."""

from __future__ import annotations

import json

import pytest

import evertable as et
from evertable.errors import EvertableError
from evertable.project import open_pipeline
from evertable.run.analysis import analyse
from evertable.run.faults import Fault
from evertable.spark import session as spark_session
from evertable.spark.schemas import SchemaStore
from evertable.user_code import load_module
from kit import Failed
from targets import OWN_SINK

SINK = """
class Notes:
    modes = ("append", "update")

    def __init__(self, file="notes.txt", mark="-"):
        self.file, self.mark = file, mark

    def open(self, table, query_id):
        self.note("open", table.name, bool(query_id))
        return self

    def prepare(self, schema, mode, keys):
        self.note("prepare", [f.name for f in schema], mode, list(keys))

    def write(self, rows, entry, mode, keys):
        self.note("write", entry.batch, sorted(map(tuple, rows.collect())))

    def maintain(self):
        self.note("maintain")

    def close(self):
        self.note("close")

    def note(self, *words):
        with open(self.file, "a") as file:
            print(self.mark, *words, file=file)
"""


def pipeline(kit, sink, mode="append", query="SELECT k, n FROM s", more=""):
    return kit.yaml(f"""
name: p
streams:
  s: {{format: json, path: in, schema: "k STRING, n BIGINT", options: {{maxFilesPerTrigger: 1}}}}
tables:
  t:
    query: {query}
    output_mode: {mode}
    trigger: available_now
    sink: {sink}
{more}""")


def feed(kit, *rows):
    kit.feed("in", *(json.dumps({"k": k, "n": n}) for k, n in rows))


def test_a_class_is_made_with_its_options_and_called_in_order(kit):
    kit.write("notes.py", SINK)
    feed(kit, ("a", 1))
    sink = '{format: python, call: "notes.py:Notes", mark: "*"}'
    query = "SELECT k, count(*) AS n FROM s GROUP BY k"
    kit.run(pipeline(kit, sink, "update", query))
    assert (kit.folder / "notes.txt").read_text().splitlines() == [
        "* open t True",
        "* prepare ['k', 'n'] update ['k']",
        "* write 0 [('a', 1)]",
        "* maintain",
        "* close",
    ]


def test_the_same_from_python(kit):
    module = load_module(str(kit.write("notes2.py", SINK)))
    feed(kit, ("a", 1))
    p = et.Pipeline("p", storage=str(kit.folder / "kept"))
    p.stream("s", format="json", path=str(kit.folder / "in"), schema="k STRING, n INT")
    sink = et.call(module.Notes, mark="+")
    p.table("t", sql="SELECT k, n FROM s", trigger=et.available_now(), sink=sink)
    p.start(spark=kit.spark).wait()
    assert "+ write 0 [('a', 1)]" in (kit.folder / "notes.txt").read_text()


def test_what_a_class_raises_is_told_with_its_line(kit):
    kit.write("bad.py", SINK.replace('self.note("write"', 'raise ValueError("no"); self.note("w"'))
    feed(kit, ("a", 1))
    with pytest.raises(Failed, match="USER_CODE_FAILED") as failed:
        kit.run(pipeline(kit, '{format: python, call: "bad.py:Notes"}'))
    assert failed.value.finding.place.file.endswith("bad.py")
    assert "ValueError: no" in failed.value.finding.message


def test_a_class_that_cannot_be_made(kit):
    kit.write("notes.py", SINK)
    feed(kit, ("a", 1))
    with pytest.raises(EvertableError, match="could not be made"):
        kit.run(pipeline(kit, '{format: python, call: "notes.py:Notes", fille: x}'))


def test_a_function_takes_no_options(kit):
    kit.write("f.py", "def f(rows, batch): rows.collect()")
    feed(kit, ("a", 1))
    with pytest.raises(EvertableError, match="OPTION_UNKNOWN") as refused:
        kit.run(pipeline(kit, '{format: python, call: "f.py:f", legder: embedded}'))
    assert "ledger" in refused.value.findings[0].hint


def test_check_says_which_guarantee_remains(kit):
    kit.write("store.py", OWN_SINK)
    kit.write("notes.py", SINK)
    kit.write("f.py", "def f(rows, batch): rows.collect()")
    feed(kit, ("a", 1))

    def told(sink):
        p = pipeline(kit, sink)
        confs = spark_session.all_confs(p.spark, logs=str(kit.folder))
        (report,) = analyse(kit.spark, confs, p, SchemaStore(str(kit.folder), keep=False))
        return report.analysed.promises, [(f.code, f.severity) for f in report.findings]

    assert told('{format: python, call: "store.py:Store", file: x}') == (("exactly once",), [])
    assert told('{format: python, call: "notes.py:Notes"}') == (("at least once",), [])
    assert told('{format: python, call: "f.py:f"}') == (("at least once",), [])
    assert told('{format: python, call: "f.py:f", ledger: embedded}') == (
        ("at least once",), [("SINK_REPEATS", "note")],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sink", "code"),
    [
        ("{format: json, path: out, ledger: embedded}", "SINK_DELIVERY"),
        ("{format: embedded, delivery: exactly_once}", "SINK_DELIVERY"),
        ("{format: console, delivery: sometimes}", "VALUE_INVALID"),
    ],
)
def test_delivery_and_ledger_where_they_mean_nothing(kit, sink, code):
    with pytest.raises(EvertableError, match=code):
        pipeline(kit, sink)


def test_with_a_ledger_a_batch_that_was_done_is_not_done_again(kit):
    kit.write("f.py", "def f(rows, batch):\n    open('f.txt', 'a').write(f'{batch} ')\n"
                      "    rows.collect()\n")  # fmt: skip
    for n in range(3):
        feed(kit, ("a", n))
    p = pipeline(kit, '{format: python, call: "f.py:f", ledger: embedded}')

    def at(point, table, batch):
        if (point, batch) == (Fault.AFTER_SINK_COMMIT, 1):
            raise RuntimeError

    with pytest.raises(Failed):
        kit.run(p, at=at)
    kit.run(open_pipeline(str(kit.file)))
    assert (kit.folder / "f.txt").read_text() == "0 1 2 "
