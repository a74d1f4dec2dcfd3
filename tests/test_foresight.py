"""What `check` says of a query is what happens: each is run by plain Spark, and compared.

Every stream gets a row at one moment, twice; then rows of other keys right before and right after
the moment at which something of the first ones has to be forgotten, or to come out.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import uuid
from pathlib import Path

import pytest

from evertable.check.foreseen import holds_back
from evertable.errors import Refused
from evertable.project import open_pipeline
from evertable.run.analysis import analyse_table, table_session
from evertable.sources.registry import SOURCES
from evertable.spark import frames
from evertable.spark.incremental import plan_of
from evertable.spark.memory import MemoryStream, block_of
from evertable.spark.schemas import SchemaStore
from evertable.testing.values import table_of
from queries_to_foresee import NAMES, text

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
SECOND = 1_000
FAR = 3 * 24 * 3_600 * SECOND
MODES = ("append", "update", "complete")
COLUMNS = {
    "a": "k STRING, at TIMESTAMP, n INT, u STRING",
    "b": "k STRING, bt TIMESTAMP, m INT",
    "c": "ck STRING, ct TIMESTAMP",
}


class Lab:
    """One query, run by plain Spark over streams in memory."""

    def __init__(self, spark, folder, name):
        self.folder = folder
        self.name = name
        for stream in "abc":
            (folder / stream).mkdir(exist_ok=True)
        shutil.copy(Path(__file__).parent / "queries_to_foresee.py", folder)
        (folder / "p.yaml").write_text(text(name))
        self.pipeline = open_pipeline(str(folder / "p.yaml"))
        self.table = self.pipeline.tables[0]
        self.session = table_session(spark, {"spark.sql.shuffle.partitions": "1"}, self.table)
        self.schemas = SchemaStore(str(folder / "schemas"), keep=False)
        self.fed = []  # milliseconds after noon of each step, one row a stream and copy
        self.streams = []
        self.query = None

    def foreseen(self):
        return analyse_table(self.session, self.pipeline, self.table, self.schemas, dry=True).seen

    def plan(self):
        """What is said of the query in any mode, refused or not."""
        built = frames.build(
            self.session, self.pipeline, self.table, SOURCES, self.schemas, dry=True
        )
        return plan_of(built.frame, self.table.output_mode)

    def start(self, mode):
        self.streams = []

        def opened(session, stream, name):
            made = MemoryStream(session, _schema(COLUMNS[stream.name]))
            self.streams.append((stream.name, made))
            return made.frame(name)

        built = frames.build(
            self.session, self.pipeline, self.table, SOURCES, self.schemas, opened=opened
        )
        checkpoint = self.folder / f"ckpt-{mode}-{len(os.listdir(self.folder))}"
        writer = built.frame.writeStream.format("memory").outputMode(mode)
        self.result = f"foreseen_{uuid.uuid4().hex}"
        writer = writer.queryName(self.result)
        self.query = writer.option("checkpointLocation", str(checkpoint)).start()

    def step(self, after, copies=1):
        """A row for every stream, the same in each copy; all batches that follow."""
        self.fed.append((after, copies))
        number = len(self.fed)
        at = NOON + dt.timedelta(milliseconds=after)
        for stream, memory in self.streams:
            schema = _schema(COLUMNS[stream])
            given = {
                "k": f"k{number}", "ck": f"k{number}", "u": f"u{number}", "n": number, "m": number,
                "at": at, "bt": at, "ct": at,
            }  # fmt: skip
            row = {field.name: given[field.name] for field in schema.fields}
            memory.add(block_of(self.session, table_of([row] * copies, schema), schema))
        self.query.processAllAvailable()
        return Happened(self.query, self.session.table(self.result).count())


class Happened:
    """What Spark says of a query after all its batches so far."""

    def __init__(self, query, rows_out):
        self.rows_out = rows_out
        self.progress = query.recentProgress
        operators = [p["stateOperators"] for p in self.progress]
        self.rows = [o["numRowsTotal"] for o in operators[-1]]
        self.removed = [sum(one[i]["numRowsRemoved"] for one in operators if one)
                        for i in range(len(operators[-1]))]  # fmt: skip


def _schema(ddl):
    from pyspark.sql.types import StructType

    return StructType.fromDDL(ddl)


@pytest.fixture
def lab(spark, tmp_path):
    labs = []

    def made(name):
        labs.append(Lab(spark, tmp_path, name))
        return labs[-1]

    yield made
    for one in labs:
        if one.query is not None:
            with contextlib.suppress(Exception):
                one.query.stop()


def operators(plan):
    """What is kept, one list for each operator of Spark's: two for the sides of a join."""
    found = []
    for kept in plan.kept:
        if kept.kind == "join" and kept.side == "right":
            found[-1].append(kept)
        else:
            found.append([kept])
    return found


def groups(kept, fed, newest):
    """How many rows of state there are by what was said; None where only growth was said."""
    if kept.bound == "constant":
        return 1
    if kept.kind == "join":
        if kept.bound == "growing":
            return sum(copies for _, copies in fed)
        return sum(copies for at, copies in fed if _end(kept, at) + kept.millis > newest)
    if kept.bound != "bounded" or (kept.kind == "session" and not kept.window):
        return None  # gaps that rows bring along
    found = set()
    for number, (at, _) in enumerate(fed):
        key = number if set(kept.keys) - {"window", "session_window", "at"} else None
        if kept.kind == "window":
            moment = int(NOON.timestamp() * 1000) + at
            start = moment - (moment % kept.slide)
            while start + kept.window > moment:
                if start + kept.window + kept.millis - int(NOON.timestamp() * 1000) > newest:
                    found.add((start, key))
                start -= kept.slide
        else:
            length = kept.window if kept.kind == "session" else 0
            if at + length + kept.millis > newest:
                found.add((at, key))
    return len(found)


def _end(kept, at):
    """When the window of a row ends; its own time where rows are not kept by windows."""
    if not kept.window:
        return at
    moment = int(NOON.timestamp() * 1000) + at
    return at - moment % kept.window + kept.window


def moments(kept):
    """When the first rows are forgotten, by what was said: right before, and right after."""
    end = kept.window + kept.millis  # of a window that begins at noon
    if kept.slide and kept.slide < kept.window:
        end = kept.slide + kept.millis  # the first of the windows at noon ends
    # Odd parts of a second, so that no two rows are forgotten at one moment.
    return [end - SECOND - end // 7_000 % 100, end + SECOND + end // 11_000 % 100]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_and_emitted_is_what_check_says(lab, name):
    one = lab(name)
    try:
        seen = one.foreseen()
    except Refused:
        with pytest.raises(Exception, match=r"(?i)not supported|streaming|watermark|join"):
            one.start(one.table.output_mode)
        return
    assert not seen.plan.unknown
    one.start(one.table.output_mode)
    found = operators(seen.plan)
    first = one.step(0, copies=2)
    assert len(first.rows) == len(found), "as many stateful operators as were said"
    bounded = [k for side in found for k in side if k.bound == "bounded"]
    waits = holds_back(seen)
    steps = sorted({m for kept in bounded for m in moments(kept) if m > 0})
    out_at = {}
    for at in [0, *steps, FAR]:
        happened = first if at == 0 else one.step(at)
        out_at[at] = happened.rows_out
        for number, (sides, rows) in enumerate(zip(found, happened.rows, strict=True)):
            chained = bool(sides[0].after)
            said = [groups(kept, one.fed, at) for kept in sides]
            exact = not chained and None not in said and sides[0].join != "left semi"
            if exact and name != "window with offset":  # whose windows begin at odd minutes
                assert rows == sum(said), f"{at / SECOND:g} s after the first, operator {number}"
            if all(kept.bound == "growing" for kept in sides):
                assert happened.removed[number] == 0
    for number, sides in enumerate(found):
        if all(kept.bound == "growing" for kept in sides) and not sides[0].after:
            assert happened.rows[number] > 1, "it grows"
        if sides[0].code:  # of the user's, seen and not run
            assert happened.rows[number] == (0 if sides[0].code.removes else 2)
        if all(kept.bound == "bounded" for kept in sides):
            assert happened.rows[number] <= 2 * len(sides) * _windows(sides[0])
    if waits is not None and name != "having":
        before, after = moments(waits)
        told = waits.kind != "session" or waits.window  # else rows bring their gaps along
        if not told:
            assert (out_at[0], happened.rows_out > 0) == (0, True)
        elif waits.slide in (0, waits.window) and name != "window with offset":
            assert out_at[before] == 0, "nothing before it is final"
            assert out_at[after] > 0, "final, and out"
    elif one.table.output_mode != "append" or not seen.plan.kept:
        assert out_at[0] > 0, "in the batch that it comes in"


def _windows(kept):
    return (kept.window // kept.slide) if kept.slide else 1


@pytest.mark.parametrize("name", NAMES)
def test_the_modes_are_sparks_own(lab, name):
    one = lab(name)
    refused = one.plan().refusals
    for mode in MODES:
        if mode in refused:
            with pytest.raises(Exception) as raised:
                one.start(mode)
            assert refused[mode][:60] in " ".join(str(raised.value).split())
        elif mode != one.table.output_mode:
            one.start(mode)
            one.fed = []
            one.step(0)
            one.query.stop()
