"""The handles of running queries, and what calls back when something happens."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

import evertable as et
from evertable.run.events import Batch, Ended, Idle, Started
from kit import wait_for


@pytest.fixture
def pipeline(kit):
    kit.feed("in", '{"ad":"a","n":1}', '{"ad":"b","n":2}')
    p = et.Pipeline("p", storage=str(kit.folder / ".evertable"))
    p.stream("s", format="json", path=str(kit.folder / "in"), schema="ad STRING, n INT")
    p.table("kept", sql="SELECT * FROM s", trigger=et.every("20 milliseconds"))
    p.table("broken", sql="SELECT n / (n - n) AS n FROM s", trigger=et.every("20 milliseconds"))
    p.table("done", sql="SELECT ad FROM s", trigger=et.available_now())
    yield p
    p.stop()


def test_a_query_says_what_it_is_and_does(kit, pipeline):
    assert pipeline.queries == {}
    pipeline.start(spark=kit.spark)
    assert set(pipeline.queries) == {"kept", "broken", "done"}
    kept, broken, done = (pipeline.queries[name] for name in ("kept", "broken", "done"))

    wait_for(lambda: kept.last_progress)
    assert kept.name == "kept"
    assert kept.state == "running"
    assert kept.exception is None
    assert kept.last_progress["numInputRows"] == 2
    assert [p["batchId"] for p in kept.recent_progress][:1] == [0]
    assert kept.recent_progress[0]["id"] == kept.id
    assert {"message", "isDataAvailable", "isTriggerActive"} <= set(kept.status)
    assert "Scan json" in kept.explain()
    assert "Analyzed Logical Plan" in kept.explain(extended=True)
    assert repr(kept) == "<query 'kept': running>"

    assert done.wait(60)
    assert done.state == "finished"
    assert broken.wait(60)
    assert broken.state == "failed"
    assert broken.exception.code == "VALUE_CAST"
    assert not kept.wait(0.05), "it runs on while the others have ended"

    stopped = kept.stop()
    assert [s.table for s in stopped] == ["kept"]
    assert kept.state == "stopped"


def test_a_restart_is_another_run_of_the_same_query(kit, pipeline):
    pipeline.start(["done"], spark=kit.spark)
    pipeline.wait()
    first = pipeline.queries["done"]
    pipeline.start(["done"], spark=kit.spark)
    pipeline.wait()
    second = pipeline.queries["done"]
    assert first.id == second.id
    assert first.run_id != second.run_id
    assert list(pipeline.queries) == ["done"]


def test_listeners_hear_start_progress_idle_and_end(kit, pipeline):
    heard = []
    hear = heard.append
    pipeline.listen(start=hear, progress=hear, idle=hear, end=hear)
    pipeline.listen(end=lambda event: heard.append("a second listener"))
    pipeline.start(["kept"], spark=kit.spark)
    wait_for(lambda: any(isinstance(e, Batch) for e in heard))
    wait_for(lambda: any(isinstance(e, Idle) for e in heard), 90)
    pipeline.stop()
    wait_for(lambda: any(isinstance(e, Ended) for e in heard))
    assert isinstance(heard[0], Started)
    (batch,) = [e for e in heard if isinstance(e, Batch)]
    assert (batch.table, batch.rows_in, batch.rows_out) == ("kept", 2, 2)
    (ended,) = [e for e in heard if isinstance(e, Ended)]
    assert (ended.how, ended.finding) == ("stopped", None)
    assert "a second listener" in heard


def test_a_listener_that_fails_harms_nobody(kit, pipeline, caplog):
    def fail(event):
        raise ValueError("no")

    pipeline.listen(start=fail, progress=fail, end=fail)
    with caplog.at_level(logging.ERROR, logger="evertable"):
        pipeline.start(["done"], spark=kit.spark)
        assert pipeline.wait()
    assert len(pipeline.table("done").rows()) == 2
    assert "a listener of started failed" in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("command", [["pipeline.py"], ["-m", "evertable", "run"]])
def test_listeners_of_a_script_hear_however_it_is_run(tmp_path, command):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.json").write_text('{"n":1}\n')
    (tmp_path / "pipeline.py").write_text("""
import evertable as et

p = et.Pipeline("p", spark={"master": "local[1]"})
p.stream("s", format="json", path="in", schema="n INT")
p.table("t", sql="SELECT * FROM s", trigger=et.available_now())
p.listen(end=lambda event: print("heard", event.table, event.how))
if __name__ == "__main__":
    p.run()
""")
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "heard t finished" in done.stdout
