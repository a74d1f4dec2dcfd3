"""A pipeline that is killed and started again: its process, its end, and all that must be equal."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from evertable.sinks.embedded.reader import query
from evertable.spark.checkpoint import Checkpoint


def start(folder: Path, *fault: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("victim.py")), "p.yaml", *fault],
        cwd=folder,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder: Path) -> None:
    victim = start(folder)
    _, errors = victim.communicate(timeout=120)
    assert victim.returncode == 0, errors


def kill_at_random(folder: Path, seed: int, notes: int, kills: int = 3) -> int:
    """Kills in so many lives, each of them among the batches that it runs; how many in all.

    An undisturbed run writes at least `notes` files of offsets and commits. A life is ended a
    moment after a random number of them, so small that none comes to its end by itself, whatever
    else the machine does. Some kills come while it starts; those, and any that found nobody alive,
    are not among those that were wanted.
    """
    chance = random.Random(seed)
    hits = 0
    for number in range(1, 4 * kills + 1):
        known = written(folder)
        victim = start(folder)
        if chance.random() < 0.2:
            time.sleep(chance.uniform(1, 4))
        else:
            most = len(known) + chance.randrange(notes // (kills + 1))
            while victim.poll() is None and len(written(folder)) <= most:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.15))  # anywhere in a batch
        with contextlib.suppress(ProcessLookupError):
            os.killpg(victim.pid, signal.SIGKILL)
        victim.communicate(timeout=120)
        hits += victim.returncode == -signal.SIGKILL and written(folder) > known
        if hits == kills:
            return number
    raise AssertionError(f"{hits} kills hit a run among its batches, {kills} were to")


def written(folder: Path) -> set[Path]:
    """What Spark has noted of batches begun and batches done, for all tables."""
    checkpoints = folder / ".evertable"
    return {
        note
        for log in ("offsets", "commits")
        for note in checkpoints.glob(f"*/checkpoints/*/{log}/[0-9]*")
    }


def kill_at(folder: Path, table: str, point, batch: int, pipeline: str = "p") -> None:
    """One kill at a named moment, seen on the disk afterwards."""
    victim = start(folder, table, point.name, str(batch))
    victim.communicate(timeout=120)
    assert victim.returncode == -signal.SIGKILL, "it was to be killed, and was not"
    checkpoint = Checkpoint(str(folder / ".evertable" / pipeline / "checkpoints" / table))
    assert checkpoint.last_offset() == batch
    assert checkpoint.last_commit() == batch - 1


def checkpoint_of(folder: Path, table: str) -> Checkpoint:
    return Checkpoint(str(folder / ".evertable/p/checkpoints" / table))


def outcome(folder, spark, embedded=(), folders=None, stateful=(), others=()) -> dict:
    """Everything that must be equal: rows, watermark, state, how many rows were late.

    `folders` are those of file tables; `stateful` maps tables to options of the state's reader;
    rows of `others` are somewhere else.
    """
    result = {}
    folders = folders or {}
    for table in (*embedded, *folders, *others):
        checkpoint = checkpoint_of(folder, table)
        result[table, "watermark"] = checkpoint.watermark_millis()
        result[table, "late"] = late(folder, table)
        if table in embedded:
            file = str(folder / f".evertable/p/tables/{table}.sqlite")
            rows = query(f"SELECT * FROM {table}", {table: file}).rows
            result[table, "rows"] = sorted(map(repr, map(tuple, rows)))
            assert rows
        if table in folders:
            rows = spark.read.json(str(folder / folders[table])).collect()
            result[table, "files"] = sorted(map(repr, map(tuple, rows)))
            assert rows
        if table in stateful:
            reader = spark.read.format("statestore").options(**stateful[table])
            state = reader.load(checkpoint.folder).select("key", "value").collect()
            result[table, "state"] = sorted(map(repr, state))
            assert state
    return result


def late(folder: Path, table: str) -> int | None:
    """How many groups a table dropped for lateness, over all of its lives; None where nobody knows:
    a kill between Spark's commit of a batch and the victim's note of it."""
    counts: dict[int, int] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / "late.txt").read_text().splitlines():
            name, batch, number = line.split()
            if name == table:
                counts[int(batch)] = int(number)
    done = checkpoint_of(folder, table).last_commit() + 1
    return sum(counts.values()) if counts.keys() >= set(range(done)) else None


def compare(folder, found, undisturbed):
    for what, expected in undisturbed.items():
        if what[1] == "late" and found[what] is None:
            continue  # nobody was told
        assert found[what] == expected, what
    shutil.rmtree(folder)


def write_input(folder: Path, batches: int) -> int:
    """One file a batch; how many of the rows are late.

    Late ones are behind every watermark that there can be by then, each in a window of its own: so
    their number does not depend on how the files are cut into batches.
    """
    chance = random.Random(1)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    (folder / "in").mkdir(parents=True)
    number = late = 0
    for file in range(batches):
        lines = []
        for _ in range(40):
            number += 1
            minute = file * 4 + chance.uniform(-1.5, 1.5) + 2
            if file > 3 and chance.random() < 0.1:
                late += 1
                minute = -5 * late
            row = {"id": number, "ad": chance.choice("abcdef"), "n": chance.randrange(100)}
            at = noon + timedelta(minutes=minute)
            lines.append(json.dumps({**row, "at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}))
        path = folder / f"in/{file:03}.json"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1_800_000_000 + file, 1_800_000_000 + file))
    return late
