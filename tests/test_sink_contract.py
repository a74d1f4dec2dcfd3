"""What every sink has to hold, whatever it is: one suite over all of TARGETS."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import shutil

import pytest

from evertable.errors import EvertableError
from evertable.run.faults import Fault
from evertable.sinks.registry import open_sink
from kit import Failed
from targets import TARGETS

UTC = dt.UTC


@pytest.fixture(params=TARGETS, ids=lambda kind: kind.__name__)
def target(request, kit):
    return request.param(kit, request)


class Killed(Exception):
    """What a fault raises in process; the real kills are in `prove/`."""


def run(target, query, mode="append", more="", **keys):
    """A pipeline with one table `t` over what was fed, to its end."""
    kit = target.kit
    if type(target).__name__ == "Kafka" and "AS value" not in query:
        query = f"SELECT to_json(struct(*)) AS value FROM ({query})"
    pipeline = kit.yaml(f"""
name: p
streams:
  s: {{format: json, path: in, schema: "k STRING, n BIGINT", options: {{maxFilesPerTrigger: 1}}}}
tables:
  t:
    query: |
      {query}
    output_mode: {mode}
    trigger: available_now
    sink: {target.sink()}
{more}""")
    return kit.run(pipeline, **keys)


def feed(target, *rows):
    target.kit.feed("in", *(json.dumps({"k": k, "n": n}) for k, n in rows))


def pairs(target):
    return sorted((row["k"], row["n"]) for row in target.rows())


def strike(point, batch):
    def at(where, table, number):
        if (where, number) == (point, batch):
            raise Killed(point)

    return at


COUNT = "SELECT k, count(*) AS n FROM s GROUP BY k"


# -- rows ----------------------------------------------------------------------------------------


def test_append(target):
    for n in range(3):
        feed(target, ("a", n), ("b", n))
    run(target, "SELECT k, n FROM s")
    assert pairs(target) == sorted((k, n) for n in range(3) for k in "ab")


def test_update(target):
    if "update" not in target.modes:
        with pytest.raises(EvertableError, match="SINK_MODE"):
            run(target, COUNT, mode="update")
        return
    feed(target, ("a", 1), ("b", 1))
    feed(target, ("a", 1))
    run(target, COUNT, mode="update")
    versions = [("a", 1), ("a", 2), ("b", 1)]
    assert pairs(target) == (
        [v for v in versions if v != ("a", 1)] if target.replaces else versions
    )


def test_complete(target):
    if "complete" not in target.modes:
        with pytest.raises(EvertableError, match="SINK_MODE"):
            run(target, COUNT, mode="complete")
        return
    feed(target, ("a", 1), ("b", 1))
    feed(target, ("a", 1))
    run(target, COUNT, mode="complete")
    found = pairs(target)
    if type(target).__name__ in ("Kafka", "FunctionWithLedger"):  # they get each result whole
        assert found == [("a", 1), ("a", 2), ("b", 1), ("b", 1)]
    else:
        assert found == [("a", 2), ("b", 1)]


def test_types(target):
    if not target.typed:
        pytest.skip("rows are text here, made by the user's code or by the query")
    feed(target, ("a", 1))
    run(
        target,
        """SELECT k, n, CAST(1 AS TINYINT) AS tiny, CAST(-2 AS SMALLINT) AS small,
        CAST(3 AS INT) AS whole, CAST(0.5 AS FLOAT) AS f, 0.1D AS d, n = 1 AS yes,
        CAST('12345678901234567.89' AS DECIMAL(20,2)) AS exact,
        DATE'2026-01-31' AS day, TIMESTAMP'2026-01-31 12:00:00.000001Z' AS at,
        TIMESTAMP_NTZ'2026-01-31 12:00:00' AS local, unhex('00FF') AS bytes,
        named_struct('x', 1, 'y', array('z')) AS nested, CAST(NULL AS INT) AS nothing
        FROM s""".replace("\n", "\n      "),
    )
    (row,) = target.rows()
    row["at"] = row["at"].replace(tzinfo=UTC) if row["at"].tzinfo is None else row["at"]
    row["bytes"] = bytes(row["bytes"])
    assert row == {
        "k": "a", "n": 1, "tiny": 1, "small": -2, "whole": 3, "f": 0.5, "d": 0.1, "yes": True,
        "exact": decimal.Decimal("12345678901234567.89"), "day": dt.date(2026, 1, 31),
        "at": dt.datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC),
        "local": dt.datetime(2026, 1, 31, 12), "bytes": b"\x00\xff",
        "nested": {"x": 1, "y": ["z"]}, "nothing": None,
    }  # fmt: skip


def test_extremes(target):
    if not target.typed:
        pytest.skip("rows are text here, made by the user's code or by the query")
    feed(target, ("a", 1))
    run(
        target,
        """SELECT CAST('NaN' AS DOUBLE) AS nan, CAST('-Infinity' AS DOUBLE) AS least,
        9223372036854775807 AS most, TIMESTAMP'0001-01-01 00:00:00Z' AS early,
        TIMESTAMP'9999-12-31 23:59:59.999999Z' AS late,
        CAST('99999999999999999999999999999999999999' AS DECIMAL(38,0)) AS wide,
        CAST('-0.0000000001' AS DECIMAL(12,10)) AS thin FROM s""".replace("\n", "\n      "),
    )
    (row,) = target.rows()
    assert float(row["nan"]) != float(row["nan"])
    assert row["least"] == float("-inf")
    assert row["most"] == 2**63 - 1
    assert row["early"].replace(tzinfo=None) == dt.datetime(1, 1, 1)
    assert row["late"].replace(tzinfo=None) == dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert row["wide"] == decimal.Decimal("9" * 38)
    assert row["thin"] == decimal.Decimal("-0.0000000001")


def test_nulls_and_odd_text(target):
    texts = [
        None, "", "NULL", "\\N", "ünïcödé 漢字 🦆", "two\nlines\r",
        "tab\t\"quote' \\", "\x01\x07\x1b", "'; DROP TABLE t; --", "e\u0301",
    ]  # fmt: skip
    feed(target, *((text, None) for text in texts))
    run(target, "SELECT k, n FROM s")
    found = [(row.get("k"), row.get("n")) for row in target.rows()]
    assert sorted(found, key=repr) == sorted(((t, None) for t in texts), key=repr)


def test_a_batch_without_rows(target):
    feed(target, ("a", 1))
    feed(target, ("b", 2))
    feed(target, ("a", 3))
    run(target, "SELECT k, n FROM s WHERE k <> 'b'")
    assert pairs(target) == [("a", 1), ("a", 3)]


@pytest.mark.long
def test_a_million_rows(target):
    feed(target, ("a", 1))
    run(target, "SELECT k, explode(sequence(1L, 1000000L)) AS n FROM s")
    found = [row["n"] for row in target.rows()]
    assert len(found) == 1_000_000
    assert sum(found) == 1_000_000 * 1_000_001 // 2
    assert len(set(found)) == 1_000_000


# -- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "batch"),
    [
        (Fault.BEFORE_DATA, 2),
        (Fault.AFTER_DATA, 2),
        (Fault.AFTER_SINK_COMMIT, 0),
        (Fault.AFTER_SINK_COMMIT, 2),
    ],
    ids=lambda p: getattr(p, "name", p),
)
def test_a_batch_comes_again(target, point, batch):
    """Whenever a run ends, the next one goes on; a batch that was written is not written again."""
    for n in range(3):
        feed(target, ("a", n))
    repeats = 0
    try:
        run(target, "SELECT k, n FROM s", at=strike(point, batch))
    except Failed:
        repeats = type(target).__name__ == "FunctionWithLedger" and point is Fault.AFTER_DATA
    else:  # Spark writes by itself, or nobody says when data is there
        assert type(target).__name__ in ("Files",)
    run(target, "SELECT k, n FROM s")
    again = [("a", batch)] if repeats else []  # as `check` said of it
    assert pairs(target) == sorted([("a", 0), ("a", 1), ("a", 2), *again])


def test_state_goes_on_when_a_batch_is_not_written_again(target):
    if "update" not in target.modes:
        pytest.skip("takes no updates")
    for _ in range(3):
        feed(target, ("a", 1))
    with pytest.raises(Failed):
        run(target, COUNT, mode="update", at=strike(Fault.AFTER_SINK_COMMIT, 1))
    run(target, COUNT, mode="update")
    assert max(pairs(target)) == ("a", 3)
    assert len(pairs(target)) == (1 if target.replaces else 3)


def test_the_newest_claim_writes_and_no_other(target):
    if not target.fences:
        pytest.skip("a second writer is kept out by the checkpoint's lock alone")
    feed(target, ("a", 1))
    runner = run(target, "SELECT k, n FROM s")
    kit, run_of_t = target.kit, runner.runs[0]
    pipeline, table = runner.pipeline, runner.pipeline.tables[0]
    from evertable.model.ledger import LedgerEntry
    from evertable.run.targets import sink_options

    options = sink_options(pipeline, table, table.sinks[0])
    query_id = run_of_t._query_id
    rows = kit.spark.createDataFrame([("z", 9)], "k STRING, n BIGINT")
    if type(target).__name__ == "Kafka":
        rows = rows.selectExpr("to_json(struct(*)) AS value")

    def claim():
        sink = open_sink(kit.spark, pipeline, table, table.sinks[0], options, print)
        session = sink.open(table, query_id)
        session.prepare(rows.schema, "append", [])
        return session

    def write(session, batch):
        session.write(rows, LedgerEntry(query_id, batch, "d"), "append", [], lambda: None)

    old = claim()
    new = claim()
    try:
        with pytest.raises(EvertableError) as refused:
            write(old, 1)
        # Postgres ends the old one's connection; whoever comes back to it is told it was fenced
        assert refused.value.findings[0].code in ("SINK_FENCED", "SINK_UNREACHABLE")
        write(new, 1)
        with pytest.raises(EvertableError, match="SINK_FENCED"):
            write(new, 1)  # and only forwards
    finally:
        old.close()
        new.close()
    assert pairs(target) == [("a", 1), ("z", 9)]


# -- targets that are not as they were -----------------------------------------------------------


def test_another_schema_is_refused(target):
    if not target.replaces:
        pytest.skip("takes any columns")
    feed(target, ("a", 1))
    run(target, "SELECT k, n FROM s")
    feed(target, ("b", 2))
    with pytest.raises(EvertableError, match="SINK_SCHEMA|CHECKPOINT_FAILS"):
        run(target, "SELECT k, CAST(n AS STRING) AS n FROM s")
    with pytest.raises(EvertableError, match="SINK_SCHEMA|CHECKPOINT_FAILS"):
        run(target, "SELECT k, n, n + 1 AS more FROM s", more="    on_schema_change: fail")
    assert pairs(target) == [("a", 1)]


def test_new_columns_are_added_where_that_is_asked_for(target):
    if not target.replaces:
        pytest.skip("has no columns of its own")
    feed(target, ("a", 1))
    run(target, "SELECT k, n FROM s")
    feed(target, ("b", 2))
    run(target, "SELECT n * 2 AS twice, k, n FROM s", more="    on_schema_change: add_columns")
    rows = sorted(((r["k"], r["n"], r["twice"]) for r in target.rows()), key=repr)
    assert rows == [("a", 1, None), ("b", 2, 4)]


def test_dropped_while_it_runs(target):
    for n in range(3):
        feed(target, ("a", n))

    def at(point, table, batch):
        if (point, batch) == (Fault.BEFORE_DATA, 1):
            target.drop()

    if type(target).__name__ in ("OwnClass", "FunctionWithLedger"):
        pytest.skip("what the user's code does then is the user's")
    with pytest.raises(Failed) as failed:
        run(target, "SELECT k, n FROM s", at=at)
    assert failed.value.finding.code == "TARGET_GONE"


def three_batches(target, after=None):
    """Batch 0, something, then batches 1 and 2."""
    feed(target, ("a", 0))
    run(target, "SELECT k, n FROM s")
    kept = after() if after else None
    feed(target, ("a", 1))
    feed(target, ("a", 2))
    run(target, "SELECT k, n FROM s")
    return kept


def refused(target, code):
    feed(target, ("a", 3))
    with pytest.raises(EvertableError, match=code) as error:
        run(target, "SELECT k, n FROM s")
    return error.value.findings[0]


def test_rolled_back(target):
    if type(target).__name__ == "Kafka":
        pytest.skip("a log is not restored to an older state; its offsets are: see below")
    if not target.keeps_ledger_inside:
        pytest.skip("the ledger is here, and not a part of the target")
    saved = three_batches(target, target.save)
    target.restore(saved)
    finding = refused(target, "SINK_BEHIND")
    assert "batches 1 to 2" in finding.detail
    assert [n for _, n in pairs(target)] == [0]


def test_checkpoint_rolled_back(target):
    folder = target.kit.folder / ".evertable/p/checkpoints/t"
    saved = target.kit.folder / "saved-checkpoint"
    three_batches(target, lambda: shutil.copytree(folder, saved))
    shutil.rmtree(folder)
    shutil.copytree(saved, folder)
    refused(target, "SINK_AHEAD")
    assert [n for _, n in pairs(target)] == [0, 1, 2]


def test_checkpoint_lost(target):
    three_batches(target)
    shutil.rmtree(target.kit.folder / ".evertable/p/checkpoints/t")
    finding = refused(target, "TARGET_OWNED")
    assert ('of "p/t"' in finding.detail) == target.names_owner
    assert [n for _, n in pairs(target)] == [0, 1, 2]


def test_ledger_deleted(target):
    three_batches(target)
    target.delete_ledger()
    refused(target, "SINK_BEHIND")


def test_two_sinks_one_of_which_fails(target):
    """The batch is computed once; the sink that had it does not get it again."""
    for n in range(3):
        feed(target, ("a", n))
    both = target.sink()
    target.kit.write(
        "other.py",
        """
        import os
        def other(rows, batch):
            found = rows.collect()
            if batch == 1 and not os.path.exists("failed"):
                open("failed", "w").close()
                raise RuntimeError("down")
            with open("other.txt", "a") as file:
                file.writelines(f"{batch} {len(found)}\\n" for _ in found)
        """,
    )
    target.sink = lambda: f'[{both}, {{format: python, call: "other.py:other"}}]'
    with pytest.raises(Failed, match="USER_CODE_FAILED"):
        run(target, "SELECT k, n FROM s")
    run(target, "SELECT k, n FROM s")
    assert pairs(target) == [("a", 0), ("a", 1), ("a", 2)]
    lines = (target.kit.folder / "other.txt").read_text().split("\n")
    assert lines == ["0 1", "1 1", "2 1", ""]
