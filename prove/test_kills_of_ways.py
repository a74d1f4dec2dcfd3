"""SIGKILL at random moments while a table goes a way forward; then the same command again.

Whatever it was doing, it ends in the state that was chosen: rows of an undisturbed way.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from evertable.sinks.embedded.reader import query

BATCHES = 6
PIPELINE = """
name: p
spark: {master: "local[2]", spark.sql.shuffle.partitions: 2}
streams:
  s:
    format: json
    path: in
    schema: "k STRING, u STRING, at TIMESTAMP, n INT"
    options: {maxFilesPerTrigger: 1}
    watermark: {column: at, delay: 2 minutes}
tables:
  t:
    query: SELECT window.start AS w, KEY AS k, sum(n) AS v FROM s GROUP BY window(at, 'LONG'), KEY
    trigger: available_now
"""
OLD = PIPELINE.replace("KEY", "k").replace("LONG", "5 minutes")
EDITS = {
    "keep_old": OLD.replace("k AS k", "u AS k").replace(", k\n", ", u\n"),
    "beside": OLD.replace("k AS k", "u AS k").replace(", k\n", ", u\n"),
    "start_over": OLD.replace("k AS k", "u AS k").replace(", k\n", ", u\n"),
    "rebuild": OLD.replace("k AS k", "u AS k").replace(", k\n", ", u\n"),
    "accept": OLD.replace("5 minutes", "10 minutes"),
}
MANY = {"test_killed_on_the_way": ("way", list(EDITS), 3)}


def write_files(folder: Path, first: int, number: int, rows: int = 40) -> None:
    chance = random.Random(first)
    (folder / "in").mkdir(exist_ok=True)
    for file in range(first, first + number):
        lines = []
        for _ in range(rows):
            minute = file * 4 + chance.uniform(0, 4)
            at = f"2026-01-01T12:{int(minute):02}:{int(minute % 1 * 60):02}Z"
            lines.append(json.dumps({
                "k": chance.choice("abc"), "u": chance.choice("vwx"), "at": at,
                "n": chance.randrange(100),
            }))  # fmt: skip
        path = folder / f"in/{file:03}.json"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1_800_000_000 + file, 1_800_000_000 + file))


def start(folder: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "evertable", "run", *words], cwd=folder, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def begun(folder: Path) -> Path:
    folder.mkdir()
    (folder / "p.yaml").write_text(OLD)
    write_files(folder, 0, BATCHES // 2)
    first = start(folder)
    said, _ = first.communicate(timeout=120)
    assert first.returncode == 0, said
    write_files(folder, BATCHES // 2, BATCHES // 2)
    return folder


def outcome(folder: Path) -> dict:
    found = {}
    for file in sorted((folder / ".evertable/p/tables").glob("*.sqlite")):
        connection = sqlite3.connect(file)
        rows = connection.execute("SELECT * FROM t_2" if "_2" in file.stem else "SELECT * FROM t")
        found[file.name] = sorted(rows)
        connection.close()
    assert found["t.sqlite"]
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    known = {}

    def of(way):
        if way not in known:
            folder = begun(tmp_path_factory.mktemp("undisturbed") / "p")
            (folder / "p.yaml").write_text(EDITS[way])
            began = time.monotonic()
            run = start(folder, "--answer", f"t={way}")
            said, _ = run.communicate(timeout=180)
            assert run.returncode == 0, said
            known[way] = outcome(folder), time.monotonic() - began
        return known[way]

    return of


def test_killed_on_the_way(way, tmp_path, undisturbed, short):
    expected, took = undisturbed(way)
    chance = random.Random(way)
    folder = begun(tmp_path / "p")
    (folder / "p.yaml").write_text(EDITS[way])
    kills = 0
    for n in range(2 if short else 10):
        victim = start(folder, "--answer", f"t={way}") if n == 0 else start(folder)
        # From the moment that Spark is up to the end: what comes before changes nothing.
        time.sleep(took * chance.uniform(0.35, 1))
        alive = victim.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(victim.pid, signal.SIGKILL)
        victim.communicate(timeout=60)
        kills += alive
    assert kills
    again = [] if (folder / ".evertable/p/answers/t.json").exists() else ["--answer", f"t={way}"]
    last = start(folder)
    said, _ = last.communicate(timeout=180)
    if last.returncode and "CHECKPOINT_" in said:  # killed before the answer was kept
        last = start(folder, *again)
        said, _ = last.communicate(timeout=180)
    assert last.returncode == 0, said
    assert outcome(folder) == expected


def test_two_million_rows_are_rebuilt_while_more_arrive(tmp_path, short):
    """The new table equals a batch computation over all input; readers see no half of it."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    million = 200_000 if short else 2_000_000
    folder = tmp_path / "p"
    (folder / "in").mkdir(parents=True)
    text = OLD.replace("format: json", "format: parquet").replace(
        "k STRING, u STRING, at TIMESTAMP, n INT", "k INT, u INT, at TIMESTAMP, n INT"
    ).replace("5 minutes", "1 minute").replace("2 minutes", "10 seconds")  # fmt: skip
    rng = numpy.random.default_rng(1)

    def add(number, rows, minute):
        seconds = 1_767_268_800 + minute * 60 + numpy.sort(rng.uniform(0, 60, rows))
        micros = pyarrow.array((seconds * 1e6).astype("int64"))
        table = pyarrow.table({
            "k": rng.integers(0, 200, rows, "int32"), "u": rng.integers(0, 200, rows, "int32"),
            "at": micros.cast(pyarrow.timestamp("us", "UTC")),
            "n": rng.integers(0, 100, rows, "int32"),
        })  # fmt: skip
        draft = folder / f"in/.{number:03}.parquet"
        pyarrow.parquet.write_table(table, draft)
        os.utime(draft, (1_800_000_000 + number, 1_800_000_000 + number))
        draft.rename(folder / f"in/{number:03}.parquet")
        return table

    tables = [add(n, million // 20, n) for n in range(20)]
    (folder / "p.yaml").write_text(text.replace("available_now", "{processing_time: 1 second}"))
    first = start(folder)
    file = str(folder / ".evertable/p/tables/t.sqlite")

    def rows():
        with contextlib.suppress(Exception):
            return query("SELECT count(*), min(length(k)) FROM t", {"t": file}).rows[0][0]
        return 0

    wait(lambda: rows() >= 200 * 15)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    before = rows()
    edited = text.replace("k AS k", "u % 100 AS k").replace(", k\n", ", u % 100\n")
    (folder / "p.yaml").write_text(edited.replace("available_now", "{processing_time: 1 second}"))
    run = start(folder, "--answer", "t=rebuild")
    seen: set[int] = set()
    ended = threading.Event()

    def read():
        while not ended.is_set():
            seen.add(query("SELECT count(*) FROM t", {"t": file}).rows[0][0])

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(20, 24):  # while it is built, and after
        time.sleep(2)
        tables.append(add(n, 1_000, n))
    whole = pyarrow.concat_tables(tables).to_pandas()
    whole["w"] = whole["at"].dt.floor("1min")
    whole["key"] = whole["u"] % 100
    truth = whole.groupby(["w", "key"])["n"].sum()
    closed = truth[truth.index.get_level_values("w") < whole["at"].max().floor("1min")]
    wait(lambda: rows() == len(closed), 180)
    ended.set()
    reader.join()
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 0, said
    found = query("SELECT w, k, v FROM t", {"t": file}).rows
    assert sorted(v for _, _, v in found) == sorted(closed.tolist())
    assert sum(v for _, _, v in found) == closed.sum()
    old = sqlite3.connect(file.replace("t.sqlite", "t.old-1.sqlite"))
    assert old.execute("SELECT count(*) FROM t").fetchone()[0] == before
    # The old table until the swap; then the new one, with all that was there when it was built.
    after = {n for n in seen if n != before}
    assert min(after) >= 100 * 15
    assert before in seen


def wait(condition, seconds=120):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to pass")
