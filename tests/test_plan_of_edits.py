"""What `plan` says of an edit is what happens: each one is run by plain Spark, and rows compared.

The old query reads some batches, the file is edited, and Spark restarts on the checkpoint with the
new query. The truth is what the old and the new query give when they are never exchanged.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections import Counter
from typing import NamedTuple

import pytest

from edits import BASES, CODE, EDITS, HELPER
from evertable.errors import EvertableError
from evertable.plan.changes import GOES_ON
from evertable.project import open_pipeline
from evertable.run.analysis import analyse_table, table_session
from evertable.run.planning import Planning
from evertable.sources.registry import SOURCES
from evertable.spark import frames, planner
from evertable.spark.schemas import SchemaStore

A = ("id", "k", "u", "at", "n", "m", "x")
B = ("bid", "bk", "bu", "bt", "v", "w")
FIRST = {
    "a": [
        (20, "x", "v", "11:52", 6, 6, 2.5), (1, "x", "y", "12:01", 3, 7, 1.5),
        (2, "y", "v", "12:03", 5, 1, 2.5), (3, "x", "x", "12:06", 1, 9, 0.5),
        (4, "y", "y", "12:08", 2, 2, 1.0), (5, "x", "y", "12:16", 8, 3, 3.5),
        (1, "x", "y", "12:01", 3, 7, 1.5), (21, "p", "p", "12:10", 1, 1, 1.5),
    ],
    "b": [
        (11, "x", "y", "12:02", 6, 2), (12, "y", "y", "12:05", 2, 8), (13, "x", "x", "12:07", 9, 4),
        (14, "w", "y", "12:06", 1, 6), (15, "y", "x", "12:16", 3, 5), (19, "x", "v", "11:51", 8, 8),
        (22, "p", "p", "12:14", 6, 6),
    ],
    "c": [(31, "x", "y", "12:01", 30, 70, 1.5), (32, "y", "x", "12:09", 50, 10, 2.5)],
}  # fmt: skip
THEN = {
    "a": [
        (6, "x", "y", "12:09", 2, 8, 4.5), (7, "y", "x", "12:14", 6, 4, 0.5),
        (8, "x", "x", "12:07", 7, 5, 1.5), (2, "y", "v", "12:03", 5, 1, 2.5),
        (10, "x", "y", "11:55", 5, 5, 5.5), (23, "y", "x", "12:13", 3, 3, 1.5),
        (12, "w", "x", "12:08", 4, 1, 0.5), (99, "z", "z", "13:30", 9, 9, 9.5),
    ],
    "b": [
        (16, "x", "y", "12:10", 5, 3), (17, "y", "x", "12:13", 7, 1), (18, "x", "x", "12:07", 4, 4),
        (21, "y", "v", "13:10", 2, 2), (98, "q", "q", "13:30", 9, 9),
    ],
    "c": [(33, "x", "y", "12:14", 20, 80, 4.5)],
}  # fmt: skip


NUMBERS = itertools.count()  # of modules
FOLDERS = ("a", "b", "c", "raw", "csv")


class Lab:
    """A folder with a pipeline of one table, and plain Spark."""

    def __init__(self, folder, spark):
        self.folder = folder
        self.spark = spark
        self._files = 0
        self._kept = None
        (folder / "s1.csv").write_text("sk,brand\nx,ada\nx,ann\ny,bob\nz,cy\n")
        (folder / "s2.csv").write_text("sk,brand\nx,bob\ny,ada\nz,dee\n")
        for name in FOLDERS:
            (folder / name).mkdir()

    def keep(self):
        """Remember what is there, for `restore`."""
        self._kept = {f for name in FOLDERS for f in (self.folder / name).iterdir()}
        shutil.copytree(self.folder / ".evertable", self.folder / "kept")

    def restore(self):
        """As it was, in the same place: a checkpoint may know where it is."""
        for name in FOLDERS:
            for file in (self.folder / name).iterdir():
                if file not in self._kept:
                    file.unlink()
        shutil.rmtree(self.folder / ".evertable")
        shutil.copytree(self.folder / "kept", self.folder / ".evertable")

    def feed(self, rows, leave_out=""):
        for stream, found in rows.items():
            if stream == leave_out:
                continue
            names = B if stream == "b" else A
            lines = [json.dumps(dict(zip(names, self._dated(names, row), strict=True)))
                     for row in found]  # fmt: skip
            self._write(stream, lines)
            if stream == "a":
                self._write("raw", lines)
                self._write("csv", [f"{k},{u},{n},{m},{id}" for id, k, u, _, n, m, _ in found])

    def _dated(self, names, row):
        return [f"2026-01-01T{v}:00Z" if n in ("at", "bt") else v
                for n, v in zip(names, row, strict=True)]  # fmt: skip

    def _write(self, folder, lines):
        self._files += 1
        path = self.folder / folder / f".{self._files:03}.json"
        path.write_text("\n".join(lines) + "\n")
        moment = 1_800_000_000 + self._files
        os.utime(path, (moment, moment))
        path.rename(path.with_name(f"{self._files:03}.json"))

    def write(self, text, code=(), helper=(), name="one"):
        """The pipeline, with code of its own: Python keeps modules by their names."""
        module = f"{self.folder.name}_{name}_{next(NUMBERS)}"
        made, help = CODE, HELPER
        for old, new in code:
            assert old in made, old
            made = made.replace(old, new)
        for old, new in helper:
            assert old in help, old
            help = help.replace(old, new)
        (self.folder / f"{module}.py").write_text(made.replace("HELPER", f"{module}_help"))
        (self.folder / f"{module}_help.py").write_text(help)
        (self.folder / "p.yaml").write_text(text.replace("MODULE", f"{module}.py"))

    def opened(self, confs=()):
        pipeline = open_pipeline(str(self.folder / "p.yaml"))
        given = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
        session = table_session(self.spark, given | dict(confs), pipeline.tables[0])
        return pipeline, pipeline.tables[0], session

    def schemas(self):
        return SchemaStore(str(self.folder / "schemas"), keep=False)

    def planned(self, confs=()):
        """What is said of the pipeline as it stands; and what it is."""
        pipeline, table, session = self.opened(confs)
        planning = Planning(pipeline, table)
        named = planning.checkpoint.sources_named()
        analysed = analyse_table(session, pipeline, table, self.schemas(), named=named, shaped=True)
        return planning, *planning.judged(analysed)

    def begin(self):
        """Note the pipeline as it stands, as a start does."""
        planning, _, manifest = self.planned()
        planning.checkpoint.make_query_id()
        planning.keeping.begin(manifest, planning.standing())

    def run(self, checkpoint=None, confs=()):
        """All that there is to read now, through plain Spark; the rows that came out."""
        pipeline, table, session = self.opened(confs)
        folder = checkpoint or Planning(pipeline, table).checkpoint.folder
        from evertable.spark.checkpoint import Checkpoint

        built = frames.build(
            session, pipeline, table, SOURCES, self.schemas(),
            named=Checkpoint(folder).sources_named(),
        )  # fmt: skip
        rows = []

        def take(batch, number):
            rows.append([tuple(r) for r in batch.collect()])

        writer = built.frame.writeStream.foreachBatch(take).outputMode(table.output_mode)
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
        keys = planner.group_keys(built.frame) if table.output_mode == "update" else None
        return Out(table.output_mode, built.frame.columns, keys or table.key, rows)


class Out:
    """What a run gave: rows, the newest of each key, or the whole of the last batch."""

    def __init__(self, mode, columns, keys, batches):
        rows = [row for batch in batches for row in batch]
        self.mode = mode
        at = [columns.index(k) for k in keys or () if k in columns]
        if mode == "complete":
            rows = batches[-1] if batches else []
        elif mode == "update" and at:
            rows = list({tuple(row[i] for i in at): row for row in rows}.values())
        self.rows = Counter(map(repr, rows))

    def lost(self, before, old, new):
        """Rows that either query would have given in the end, and that nobody gave now."""
        olds, news = (Counter(one[0].rows) + one[1].rows for one in (old, new))
        return (olds & news) - (Counter(before.rows) + self.rows)


class Begun(NamedTuple):
    """A base that has run for a while; what it gave, and gives when it is left alone."""

    lab: Lab
    first: Out
    then: Out


@pytest.fixture(scope="module")
def begun(tmp_path_factory, spark):
    """Each base, run once; a lab is as it was then whenever it is asked for."""
    known = {}

    def of(base):
        if base not in known:
            lab = Lab(tmp_path_factory.mktemp("begun"), spark)
            lab.write(BASES[base])
            lab.feed(FIRST)
            lab.begin()
            first = lab.run()
            lab.keep()
            lab.feed(THEN)
            known[base] = Begun(lab, first, lab.run())
        known[base].lab.restore()
        return known[base]

    return of


def snapshot(folder):
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


TOOK: list[float] = []


# In the order of their bases, so that each is run in few processes.
@pytest.mark.parametrize("name", sorted(EDITS, key=lambda name: EDITS[name].base))
@pytest.mark.long
def test_what_is_said_of_an_edit_is_what_happens(name, begun, tmp_path, spark):
    edit = EDITS[name]
    lab, first, then = begun(edit.base)
    text = BASES[edit.base]
    for old, new in edit.text:
        assert old in text, old
        text = text.replace(old, new)
    lab.write(text, edit.code, edit.helper, name="two")

    before = snapshot(lab.folder)
    since = time.monotonic()
    _, judged, _ = lab.planned(edit.confs)
    TOOK.append(time.monotonic() - since)
    assert snapshot(lab.folder) == before, "planning has changed something"
    told = [(c.code, c.verdict, c.message, c.before, c.after) for c in judged.changes]

    lab.feed(THEN)
    try:
        got = lab.run(confs=edit.confs)
    except Exception as e:
        if isinstance(e, EvertableError):
            raise
        got = None
    if got is None:
        assert judged.verdict == "fails", told
    else:
        if not (judged.verdict == "same" and got.rows == then.rows):
            fresh = Lab(tmp_path, spark)
            fresh.write(text, edit.code, edit.helper, name="new")
            # A stream that is new has all of its rows after the edit.
            joined = "c" if "FROM c" in text else ""
            fresh.feed(FIRST, leave_out=joined)
            new = [fresh.run(confs=edit.confs)]
            fresh.feed({"c": FIRST["c"]} if joined else {})
            fresh.feed(THEN)
            new.append(fresh.run(confs=edit.confs))
            turns = (first.mode, got.mode) == ("update", "append")  # gives groups a second time
            right = (
                got.rows == new[1].rows and not got.lost(first, (first, then), new) and not turns
            )
            seen = [sorted(one.rows) for one in (got, new[1], then)]
            assert right == (judged.verdict in GOES_ON), (told, *seen)
    assert judged.verdict == edit.verdict, told


@pytest.mark.long
def test_a_plan_takes_less_than_a_second():
    if len(TOOK) < 20:
        pytest.skip("runs after the others, where they run in one process")
    assert sorted(TOOK)[len(TOOK) // 2] < 1
