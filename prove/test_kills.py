"""SIGKILL of the whole process group, at every named moment and at random ones.

After each kill the same pipeline is started again, until it is done. Then rows, watermark, state
and counts of late rows must equal those of a run that nobody disturbed. How the input is cut into
batches may differ: a file that Spark had listed, and not begun, when it was killed goes into one
batch with the next one.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from evertable.run.faults import Fault
from evertable.sinks.files import FileLog
from lives import compare, finish, kill_at, kill_at_random, late, outcome, start, write_input

BATCHES = 8
PIPELINE = """
name: p
spark: {master: "local[2]"}
streams:
  s:
    format: json
    path: in
    schema: "id INT, ad STRING, at TIMESTAMP, n INT"
    watermark: {column: at, delay: 1 minute}  # so that the last batch closes a window
    options: {maxFilesPerTrigger: 1}
tables:
  plain: {query: "SELECT id, ad, n FROM s", trigger: available_now}
  windowed:
    query: SELECT window(at, '5 minutes') AS w, ad, count(*) AS c, sum(n) AS n FROM s GROUP BY 1, 2
    trigger: available_now
  updated:
    query: SELECT ad, sum(n) AS n, count(*) AS c FROM s GROUP BY ad
    output_mode: update
    trigger: available_now
  completed:
    query: SELECT ad, max(id) AS newest FROM s GROUP BY ad
    output_mode: complete
    trigger: available_now
  files: {query: "SELECT id, ad, n FROM s", trigger: available_now, sink: {format: json, path: out}}
  windowed_files:
    query: |
      SELECT window.start AS w, ad, count(*) AS c FROM s GROUP BY window(at, '5 minutes'), ad
    trigger: available_now
    sink: {format: json, path: windows}
"""
EMBEDDED = ("plain", "windowed", "updated", "completed")
FOLDERS = {"files": "out", "windowed_files": "windows"}
STATEFUL = {t: {} for t in ("windowed", "updated", "completed", "windowed_files")}
TABLES = {"embedded": EMBEDDED, "folders": FOLDERS, "stateful": STATEFUL}

AT_POINTS = [
    (table, point, batch)
    for batch in (1, BATCHES - 1, BATCHES)  # the last one: the no-data batch that closes windows
    for table in EMBEDDED
    for point in Fault
    if batch < BATCHES or table == "windowed"
]
MANY = {
    "test_killed_at_a_named_moment": ("table, point, batch", AT_POINTS, 9),
    "test_killed_at_random_moments": ("seed", list(range(7)), 7),
    "test_file_tables_killed_at_a_named_moment": (
        "table, point, batch",
        [
            (table, point, batch)
            for batch in (BATCHES - 1, BATCHES, 2)
            for table in FOLDERS
            for point in Fault
            if batch < BATCHES or table == "windowed_files"
        ],
        11,
    ),
}  # fmt: skip


def lay_out(folder: Path) -> Path:
    write_input(folder, BATCHES)
    (folder / "p.yaml").write_text(PIPELINE)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, spark):
    folder = tmp_path_factory.mktemp("undisturbed")
    late_rows = write_input(folder, BATCHES)
    (folder / "p.yaml").write_text(PIPELINE)
    finish(folder)
    found = outcome(folder, spark, **TABLES)
    assert found["windowed", "late"] == found["windowed_files", "late"] == late_rows > 0
    return found


def equal(folder, spark, undisturbed, struck=None):
    found = outcome(folder, spark, **TABLES)
    assert struck is None or found[struck, "late"] is not None
    compare(folder, found, undisturbed)


def test_killed_at_a_named_moment(table, point, batch, tmp_path, spark, undisturbed):
    folder = lay_out(tmp_path / "p")
    kill_at(folder, table, point, batch)
    finish(folder)
    equal(folder, spark, undisturbed, table)


def test_killed_at_random_moments(seed, tmp_path, spark, undisturbed):
    folder = lay_out(tmp_path / "p")
    kill_at_random(folder, seed, 2 * BATCHES * (len(EMBEDDED) + len(FOLDERS)))
    finish(folder)
    equal(folder, spark, undisturbed)


def test_file_tables_killed_at_a_named_moment(table, point, batch, tmp_path, spark, undisturbed):
    """Spark writes these by itself, so the moment is known by what is on the disk."""
    for attempt in range(6):  # the moment is some milliseconds long: begin anew until it is met
        folder = lay_out(tmp_path / str(attempt))
        victim = start(folder)
        strike_when(victim, folder, table, point, batch)
        victim.communicate(timeout=120)
        if victim.returncode == -signal.SIGKILL and is_at(folder, table, point, batch):
            break
    else:
        pytest.fail(f"{point} was never met")
    finish(folder)
    equal(folder, spark, undisturbed, table)


def strike_when(victim, folder, table, point, batch) -> None:
    while victim.poll() is None:
        if is_at(folder, table, point, batch) and late(folder, table) is not None:
            os.killpg(victim.pid, signal.SIGKILL)
            return


def is_at(folder, table, point, batch) -> bool:
    checkpoint = folder / ".evertable/p/checkpoints" / table
    if (newest(checkpoint / "offsets"), newest(checkpoint / "commits")) != (batch, batch - 1):
        return False
    written = written_now(folder / FOLDERS[table])
    match point:
        case _ if newest(folder / FOLDERS[table] / "_spark_metadata") == batch:
            return point is Fault.AFTER_SINK_COMMIT
        case Fault.BEFORE_DATA:
            return not written
        case Fault.AFTER_DATA:  # a task that is not done yet has flushed nothing of so few rows
            return any(file.stat().st_size for file in written)
    return False


def newest(folder: Path) -> int:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(n.split(".")[0]) for n in names if n.split(".")[0].isdigit()), default=-1)


def written_now(folder: Path) -> list[Path]:
    """The files of the batch that is being written: all before it are in the log."""
    logged = {os.path.basename(file) for file in FileLog(str(folder)).files()}
    return [file for file in folder.glob("part-*") if file.name not in logged]
