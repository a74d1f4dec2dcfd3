"""A sink that is down: the table waits and goes on where it stood; nothing is lost or doubled."""

from __future__ import annotations

import io
import json
import threading
from datetime import UTC, datetime

import pytest

from evertable.cli.picture import RunView, TableView, event_json, log_line
from evertable.cli.terminal import Terminal
from evertable.errors import EvertableError, Finding
from evertable.location import Location
from evertable.run import retry
from evertable.run.events import Retrying
from evertable.run.faults import Fault
from evertable.run.runner import Runner
from evertable.testing.postgres import Postgres
from kit import wait_for


@pytest.fixture
def server():
    with Postgres() as running:
        yield running


def pipeline(kit, server, trigger="available_now", query="SELECT k, n FROM s", mode="append"):
    return kit.yaml(f"""
name: p
streams:
  s: {{format: json, path: in, schema: "k STRING, n BIGINT", options: {{maxFilesPerTrigger: 1}}}}
tables:
  t:
    query: {query}
    output_mode: {mode}
    trigger: {trigger}
    sink: [{{format: postgres, url: "{server.url}", table: t}}, embedded]
""")


def feed(kit, *rows):
    kit.feed("in", *(json.dumps({"k": k, "n": n}) for k, n in rows))


def rows(server):
    import psycopg2

    with psycopg2.connect(server.url) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM t")
        return sorted(cursor.fetchall())


@pytest.fixture
def quick(monkeypatch):
    """The same decisions, in a hundredth of the time."""
    pause = retry.pause

    def soon(finding: Finding, failures: int, *, ends: bool) -> float | None:
        seconds = pause(finding, failures, ends=ends)
        return None if seconds is None else seconds / 100

    monkeypatch.setattr(retry, "pause", soon)


@pytest.mark.parametrize("point", Fault, ids=lambda p: p.name)
def test_it_goes_on_where_it_stood(kit, server, quick, point):
    for n in range(3):
        feed(kit, ("a", n))
    struck = []

    def at(where, table, batch):
        if (where, batch) == (point, 1) and not struck:
            struck.append(where)
            server.kill()
            threading.Timer(0.5, server.start).start()

    kit.run(pipeline(kit, server), at=at)
    assert rows(server) == kit.rows("t") == [("a", 0), ("a", 1), ("a", 2)]
    retries = [e for e in kit.events if isinstance(e, Retrying)]
    if point is not Fault.AFTER_SINK_COMMIT:
        assert retries[0].finding.code == "SINK_UNREACHABLE"
        assert [e.attempt for e in retries] == list(range(2, len(retries) + 2))
        assert {(e.most, e.batch) for e in retries} == {(10, 1)}


def test_state_stands_still_too(kit, server, quick):
    for _ in range(4):
        feed(kit, ("a", 1))

    def at(where, table, batch):
        if where is Fault.AFTER_DATA and batch in (1, 3) and batch not in struck:
            struck.append(batch)
            server.kill()
            server.start()

    struck = []
    query = "SELECT k, count(*) AS n FROM s GROUP BY k"
    kit.run(pipeline(kit, server, query=query, mode="update"), at=at)
    assert rows(server) == kit.rows("t") == [("a", 4)]


def test_what_ends_by_itself_does_not_wait_for_ever(kit, server, quick):
    feed(kit, ("a", 1))

    def at(where, table, batch):
        if where is Fault.BEFORE_DATA:
            server.kill()

    with pytest.raises(Exception, match="SINK_UNREACHABLE"):
        kit.run(pipeline(kit, server), at=at)
    assert len([e for e in kit.events if isinstance(e, Retrying)]) == retry.MOST - 1
    server.start()
    kit.run(pipeline(kit, server))
    assert rows(server) == [("a", 1)]


def test_it_can_be_stopped_while_it_waits(kit, server):
    feed(kit, ("a", 1))
    runner = Runner(pipeline(kit, server, "default"), spark=kit.spark, emit=kit.events.append)
    runner.start()
    wait_for(lambda: (kit.folder / ".evertable/p/checkpoints/t/commits/0").exists())
    server.kill()
    feed(kit, ("b", 2))
    wait_for(lambda: runner.runs[0].ended() or runner.runs[0].backing_off)
    (stopped,) = runner.stop()
    assert (stopped.delivered, runner.runs[0].state.value) == (False, "stopped")
    server.start()
    kit.run(pipeline(kit, server))
    assert rows(server) == kit.rows("t") == [("a", 1), ("b", 2)]


def test_a_sink_that_is_down_at_the_start_is_refused_at_once(kit, server):
    feed(kit, ("a", 1))
    p = pipeline(kit, server)
    server.kill()
    with pytest.raises(EvertableError, match="SINK_UNREACHABLE") as refused:
        kit.run(p)
    finding = refused.value.findings[0]
    assert f"127.0.0.1:{server.port}/postgres" in finding.message
    assert finding.place.line == 9
    assert not kit.events
    server.start()


def test_how_it_looks_while_it_waits():
    down = Finding(
        "SINK_UNREACHABLE", "no", Location("ads.yaml", 71), detail="alerts-db:5432 refuses"
    )
    event = Retrying("fraud_alerts", "2026-11-17T14:32:06.000Z", down, 4, 10, 41.0, 988)
    assert log_line(event) == (
        "2026-11-17T14:32:06Z error fraud_alerts SINK_UNREACHABLE ads.yaml:71 attempt=4/10 "
        "retry_in=41s"
    )
    assert event_json(event)["of"] == 10
    view = RunView("ads", {"fraud_alerts": TableView("fraud_alerts")})
    view.take(event)
    terminal = Terminal(io.StringIO())
    lines = view.lines(terminal, 5, datetime(2026, 11, 17, 14, 32, 6, tzinfo=UTC))
    assert lines[-1].strip() == (
        "SINK_UNREACHABLE ads.yaml:71  alerts-db:5432 refuses; attempt 4 of 10 in 41s, "
        "batch 988 is kept"
    )


def test_what_does_not_pass_is_not_tried_again(kit, server):
    feed(kit, ("a", 1))
    p = pipeline(kit, server, query='"SELECT concat(k, char(0)) AS k, n FROM s"')
    with pytest.raises(Exception, match="VALUE_REFUSED") as failed:
        kit.run(p)
    assert "U+0000" in failed.value.finding.hint
    assert not [e for e in kit.events if isinstance(e, Retrying)]


@pytest.mark.long
def test_a_broker_that_goes_and_comes_back(kit, tmp_path, quick):
    """One transaction is open when it goes; no row is lost, none is there twice."""
    from confluent_kafka.admin import AdminClient, NewTopic

    from evertable.testing.broker import Broker
    from kit import Kafka

    broker = Broker(str(tmp_path / "broker"))
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        admin.create_topics([NewTopic("t", 1)])["t"].result(20)
        for n in range(3):
            feed(kit, ("a", n))
        struck = []

        def at(where, table, batch):
            if where is Fault.AFTER_DATA and batch == 1 and not struck:
                struck.append(batch)
                broker.kill()
                threading.Timer(1, broker.start).start()

        kit.run(
            kit.yaml(f"""
name: p
streams:
  s: {{format: json, path: in, schema: "k STRING, n BIGINT", options: {{maxFilesPerTrigger: 1}}}}
tables:
  t:
    query: SELECT CAST(n AS STRING) AS value FROM s
    trigger: available_now
    sink:
      format: kafka
      delivery: exactly_once
      topic: t
      kafka.bootstrap.servers: "{broker.address}"
"""),
            at=at,
        )
        assert [m.value() for m in Kafka(broker).committed("t")] == [b"0", b"1", b"2"]
