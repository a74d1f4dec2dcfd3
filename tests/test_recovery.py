"""Faults inside one process: what is repeated is not written twice; what does not fit is refused.

The kills of whole processes are in prove/.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing

import pytest

from evertable.cli.picture import RunView
from evertable.cli.run import Screen
from evertable.cli.terminal import Terminal
from evertable.errors import EvertableError
from evertable.run.faults import Fault
from evertable.run.runner import Runner
from evertable.sinks.embedded.ledger import held
from evertable.sinks.files import FileLog
from kit import wait_for

TABLES = {
    "plain": ("SELECT ad, n FROM s", "append"),
    "windowed": (
        "SELECT window(at, '5 minutes') AS w, ad, count(*) AS c FROM s GROUP BY 1, 2",
        "append",
    ),
    "updated": ("SELECT ad, sum(n) AS total FROM s GROUP BY ad", "update"),
    "completed": ("SELECT ad, count(*) AS c FROM s GROUP BY ad", "complete"),
}


def pipeline(kit, which, storage=".evertable", sink=""):
    query, mode = TABLES[which]
    return kit.yaml(f"""
name: p
storage: {storage}
streams:
  s: {{format: json, path: in, schema: "ad STRING, at TIMESTAMP, n INT",
      watermark: {{column: at, delay: 1 minute}}, options: {{maxFilesPerTrigger: 1}}}}
tables:
  t:
    query: {query}
    output_mode: {mode}
    trigger: available_now
    {f"sink: {sink}" if sink else ""}
""")


def feed(kit):
    for n in range(4):
        rows = [f'{{"ad":"{ad}","at":"2026-01-01T12:{n * 4:02}:00Z","n":{n}}}' for ad in "abc"]
        kit.feed("in", *rows)


class Crash(Exception):
    """Ends a query in the middle, as far as one process can."""


@pytest.mark.parametrize("which", TABLES)
@pytest.mark.parametrize("point", list(Fault))
def test_a_batch_that_is_repeated_is_written_once(kit, which, point):
    feed(kit)
    undisturbed = pipeline(kit, which, "undisturbed")
    kit.run(undisturbed)
    expected = kit.rows("t")
    watermark = last_watermark(kit)

    kit.events.clear()
    crashed = pipeline(kit, which)
    for batch in (1, 3):

        def strike(at, table, number, batch=batch):
            if at is point and number == batch:
                raise Crash(f"at batch {number}")

        with pytest.raises(Exception, match="Crash"):
            kit.run(crashed, at=strike)
    kit.run(crashed)
    assert kit.rows("t") == expected
    assert expected
    assert last_watermark(kit) == watermark


def last_watermark(kit):
    return [e.watermark for e in kit.events if hasattr(e, "watermark")][-1]


def test_target_rolled_back_is_refused(kit):
    feed(kit)
    p = pipeline(kit, "plain")
    file = kit.folder / ".evertable/p/tables/t.sqlite"
    kit.run(p)
    shutil.copy(file, kit.folder / "old")
    kit.feed("in", '{"ad":"new","n":1}')
    kit.run(p)
    shutil.copy(kit.folder / "old", file)
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    refused(kit, p, "SINK_BEHIND")


def test_checkpoint_rolled_back_is_refused(kit):
    feed(kit)
    p = pipeline(kit, "plain")
    checkpoint = kit.folder / ".evertable/p/checkpoints/t"
    kit.run(p)
    shutil.copytree(checkpoint, kit.folder / "old")
    kit.feed("in", '{"ad":"new","n":1}')
    kit.run(p)
    shutil.rmtree(checkpoint)
    shutil.copytree(kit.folder / "old", checkpoint)
    refused(kit, p, "SINK_AHEAD")


def test_a_restored_checkpoint_that_went_another_way_is_refused(kit):
    """The same batch number with other rows: only the digest of the offsets can tell."""
    feed(kit)
    p = pipeline(kit, "plain")
    checkpoint = kit.folder / ".evertable/p/checkpoints/t"
    file = kit.folder / ".evertable/p/tables/t.sqlite"
    kit.run(p)
    shutil.copytree(checkpoint, kit.folder / "old")
    kit.feed("in", '{"ad":"new","n":1}')
    kit.run(p)  # batch 4
    shutil.copy(file, kit.folder / "later")
    shutil.rmtree(checkpoint)
    shutil.copytree(kit.folder / "old", checkpoint)
    (checkpoint / "offsets/4").write_text(
        (checkpoint / "offsets/3").read_text().replace('"logOffset":3', '"logOffset":9')
    )
    refused(kit, p, "SINK_AHEAD")


def test_a_deleted_ledger_is_refused(kit):
    feed(kit)
    p = pipeline(kit, "plain")
    kit.run(p)
    with closing(sqlite3.connect(kit.folder / ".evertable/p/tables/t.sqlite")) as connection:
        connection.execute("DELETE FROM _evertable_ledger")
        connection.commit()
    refused(kit, p, "SINK_BEHIND")


def test_a_ledger_that_does_not_say_whose_it_is_goes_on_and_says_it(kit):
    """Older versions noted the query only, in files of rows as in tables."""
    feed(kit)
    p = kit.yaml("""
name: p
streams:
  s: {format: json, path: in, schema: "ad STRING, n INT"}
tables:
  t: {query: "SELECT ad, n FROM s", trigger: available_now}
  f: {query: "SELECT ad, n FROM s", trigger: available_now, sink: {format: json, path: out}}
""")
    kit.run(p)
    ledger = kit.folder / ".evertable/p/tables/t.sqlite"
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("ALTER TABLE _evertable_ledger DROP COLUMN owner")
    note = kit.folder / "out/_evertable"
    noted = json.loads(note.read_text())
    del noted["owner"]
    note.write_text(json.dumps(noted))
    assert (held(str(ledger)).owner, FileLog(str(note.parent)).held().owner) == ("", "")
    rows = len(kit.rows("t"))
    feed(kit)
    kit.run(p)
    assert len(kit.rows("t")) == 2 * rows
    assert (held(str(ledger)).owner, FileLog(str(note.parent)).held().owner) == ("p/t", "p/f")


def test_a_deleted_table_file_is_refused(kit):
    feed(kit)
    p = pipeline(kit, "plain")
    kit.run(p)
    for path in (kit.folder / ".evertable/p/tables").iterdir():
        path.unlink()
    refused(kit, p, "SINK_BEHIND")


def test_a_lost_checkpoint_is_refused(kit):
    feed(kit)
    p = pipeline(kit, "plain")
    kit.run(p)
    shutil.rmtree(kit.folder / ".evertable/p/checkpoints/t")
    refused(kit, p, "TARGET_OWNED")


# -- files -----------------------------------------------------------------------------------------

FILES = "{format: parquet, path: out}"


def test_files_whose_log_was_rolled_back_are_refused(kit):
    feed(kit)
    p = pipeline(kit, "plain", sink=FILES)
    kit.run(p)
    (kit.folder / "out/_spark_metadata/3").unlink()
    refused_files(kit, p, "SINK_BEHIND")


def test_files_whose_log_was_deleted_are_refused(kit):
    feed(kit)
    p = pipeline(kit, "plain", sink=FILES)
    kit.run(p)
    shutil.rmtree(kit.folder / "out")
    refused_files(kit, p, "SINK_BEHIND")


def test_files_with_a_lost_checkpoint_are_refused(kit):
    """Spark itself would skip as many batches as the folder's log has, in silence."""
    feed(kit)
    p = pipeline(kit, "plain", sink=FILES)
    kit.run(p)
    shutil.rmtree(kit.folder / ".evertable/p/checkpoints/t")
    refused_files(kit, p, "TARGET_OWNED")


def test_files_with_a_rolled_back_checkpoint_are_refused(kit):
    feed(kit)
    p = pipeline(kit, "plain", sink=FILES)
    checkpoint = kit.folder / ".evertable/p/checkpoints/t"
    kit.run(p)
    for log in ("offsets", "commits"):
        for batch in (2, 3):
            (checkpoint / log / str(batch)).unlink()
            (checkpoint / log / f".{batch}.crc").unlink(missing_ok=True)
    refused_files(kit, p, "SINK_AHEAD")


def test_two_tables_may_not_write_into_one_folder(kit):
    feed(kit)
    p = kit.yaml("""
name: p
streams:
  s: {format: json, path: in, schema: "ad STRING, n INT"}
tables:
  one: {query: SELECT ad FROM s, trigger: available_now, sink: {format: parquet, path: out}}
  two: {query: SELECT n FROM s, trigger: available_now, sink: {format: parquet, path: out}}
""")
    with pytest.raises(EvertableError, match="TARGET_OWNED"):
        kit.run(p)


def refused(kit, p, code):
    before = kit.rows("t") if (kit.folder / ".evertable/p/tables/t.sqlite").exists() else None
    for _ in range(2):  # and again: nothing was half-changed
        with pytest.raises(EvertableError) as e:
            kit.run(p)
        assert e.value.findings[0].code == code
        assert '"t"' in e.value.findings[0].message
    if before is not None:
        assert kit.rows("t") == before


def refused_files(kit, p, code):
    with pytest.raises(EvertableError) as e:
        kit.run(p)
    assert e.value.findings[0].code == code


def test_the_batch_that_closes_windows_runs_after_a_restart_too(kit):
    """Spark decides on it from memory: stopped right before it, it would wait for new rows."""
    feed(kit)
    undisturbed = pipeline(kit, "windowed", "undisturbed")
    kit.run(undisturbed)
    expected = kit.rows("t")
    p = pipeline(kit, "windowed")

    def strike(at, table, number):
        if at is Fault.BEFORE_DATA and number == 4:
            raise Crash("before the batch without data")

    with pytest.raises(Exception, match="Crash"):
        kit.run(p, at=strike)
    # as if the crash had come a moment sooner, before that batch was begun
    offsets = kit.folder / ".evertable/p/checkpoints/t/offsets"
    (offsets / "4").unlink()
    (offsets / ".4.crc").unlink(missing_ok=True)
    assert kit.rows("t") != expected
    kit.run(p)
    assert kit.rows("t") == expected
    kit.run(p)  # and once only
    assert kit.rows("t") == expected


def test_new_rows_after_a_restart_are_judged_as_if_there_had_been_none(kit):
    """A batch without data before them would move the watermark first, and drop one of them."""
    feed(kit)
    late = '{"ad":"late","at":"2026-01-01T12:04:30Z","n":1}'  # its window ends at 12:05
    p = pipeline(kit, "windowed", "undisturbed")
    (kit.folder / "in/0004.txt").write_text(late + "\n")
    os.utime(kit.folder / "in/0004.txt", (1_800_000_004, 1_800_000_004))
    kit.run(p)
    expected = kit.rows("t")

    def strike(at, table, number):
        if at is Fault.BEFORE_DATA and number == 3:
            raise Crash("before the batch with the late row")

    p = pipeline(kit, "windowed", "stopped")
    with pytest.raises(Exception, match="Crash"):
        kit.run(p, at=strike)
    offsets = kit.folder / "stopped/p/checkpoints/t/offsets"
    (offsets / "3").unlink()
    (offsets / ".3.crc").unlink(missing_ok=True)
    kit.run(p)
    assert kit.rows("t") == expected


def test_once_takes_new_rows_at_every_start(kit):
    kit.feed("in", '{"ad":"a","at":"2026-01-01T12:00:00Z","n":1}')
    p = pipeline(kit, "windowed")
    p = kit.yaml(kit.file.read_text().replace("available_now", "once"))
    kit.run(p)
    kit.feed("in", '{"ad":"z","at":"2026-01-01T12:30:00Z","n":1}')
    kit.run(p)
    kit.feed("in", '{"ad":"z","at":"2026-01-01T12:31:00Z","n":1}')
    kit.run(p)
    assert [row[2:] for row in kit.rows("t")] == [("a", 1)]


def test_lost_commits_are_refused(kit):
    feed(kit)
    p = pipeline(kit, "plain")
    kit.run(p)
    shutil.rmtree(kit.folder / ".evertable/p/checkpoints/t/commits")
    refused(kit, p, "CHECKPOINT_DAMAGED")


def test_a_batch_begun_by_spark_is_never_overwritten(kit):
    from evertable.spark.checkpoint import Checkpoint

    feed(kit)
    kit.run(pipeline(kit, "windowed"))
    checkpoint = Checkpoint(str(kit.folder / ".evertable/p/checkpoints/t"))
    next_batch = (
        kit.folder / ".evertable/p/checkpoints/t/offsets" / str(checkpoint.last_commit() + 1)
    )
    next_batch.write_text("Spark's own")
    with pytest.raises(FileExistsError):
        checkpoint.begin_pending_batch()
    assert next_batch.read_text() == "Spark's own"


def test_a_second_start_in_one_process_is_refused_and_keeps_the_lock(kit):
    """Closing a second descriptor of a locked file would let go of the lock."""
    import fcntl

    from evertable.run.runner import Runner

    feed(kit)
    p = kit.yaml(pipeline_text(kit).replace("available_now", "default"))
    first = Runner(p, spark=kit.spark)
    first.start()
    try:
        with pytest.raises(EvertableError, match="CHECKPOINT_IN_USE"):
            Runner(p, spark=kit.spark).start()
        with (
            open(kit.folder / ".evertable/p/locks/t.lock", "r+") as file,
            pytest.raises(BlockingIOError),
        ):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        first.stop()


def pipeline_text(kit):
    pipeline(kit, "plain")
    return kit.file.read_text()


def test_a_failed_start_lets_go_of_every_lock(kit, monkeypatch):
    from evertable.run.runner import Runner
    from evertable.run.table_run import TableRun

    feed(kit)
    p = kit.yaml("""
name: p
streams:
  s: {format: json, path: in, schema: "ad STRING"}
tables:
  one: {query: SELECT ad FROM s, trigger: available_now}
  two: {query: SELECT ad FROM s, trigger: available_now}
""")
    with monkeypatch.context() as broken:
        broken.setattr(TableRun, "_writer", lambda self, frame: 1 / 0)
        with pytest.raises(EvertableError):
            Runner(p, spark=kit.spark).start()
    kit.run(p)
    assert len(kit.rows("two")) == 12


def test_a_draft_of_the_first_offsets_does_not_keep_the_table_from_starting(kit):
    """Killed while it wrote them; Spark alone would refuse at every start from then on."""
    feed(kit)
    p = pipeline(kit, "plain")
    offsets = kit.folder / ".evertable/p/checkpoints/t/offsets"
    offsets.mkdir(parents=True)
    for name in (".0.b621597e.tmp", "..0.b621597e.tmp.crc"):
        (offsets / name).write_text("")
    kit.run(p)
    assert len(kit.rows("t")) == 12


SLOW = """
import os
import time

def slowly(s):
    def rows(pieces):
        for piece in pieces:
            open("FOLDER/begun", "w").close()
            while not os.path.exists("FOLDER/quick"):
                time.sleep(0.1)
            yield piece
    return s.select("n").mapInArrow(rows, "n INT")
"""


def test_a_batch_that_outlasts_the_stop_timeout_is_abandoned_and_comes_again(kit):
    """Spark can leave the rows of a query at any of them; only a sink's function is waited for."""
    feed(kit)
    kit.write("slow.py", SLOW.replace("FOLDER", str(kit.folder)))
    model = kit.yaml("""
name: p
streams:
  s: {format: json, path: in, schema: "n INT"}
tables:
  t: {query: {python: "slow.py:slowly"}, trigger: available_now, stop_timeout: 1 second}
""")
    runner = Runner(model, spark=kit.spark)
    runner.start()
    wait_for((kit.folder / "begun").exists)
    asked = time.monotonic()
    stopped = runner.stop()
    assert 1 <= time.monotonic() - asked < 15
    assert [run.state.value for run in runner.runs] == ["stopped"]
    said = io.StringIO()
    Screen(Terminal(said)).ended(RunView("p", {}), stopped, 1.0)
    line = "batch 0 was not delivered; it is the first one next time"
    assert said.getvalue().splitlines()[0] == f"! {'t':<21} {line}"
    assert kit.rows("t") == []

    (kit.folder / "quick").touch()
    kit.feed("in", '{"n":9}')
    kit.run(model)
    assert kit.rows("t") == [(n,) for n in (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 9)]
