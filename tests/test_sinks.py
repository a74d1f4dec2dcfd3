"""Every kind of sink, with the rows that arrive in it."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import sqlite3
import stat
import threading

import pytest

from evertable.errors import EvertableError
from evertable.run.runner import Runner

UTC = dt.UTC


def pipeline(kit, query, sink="", mode="append", more=""):
    return kit.yaml(f"""
name: p
streams:
  s: {{format: json, path: in, schema: "k STRING, n INT", options: {{maxFilesPerTrigger: 1}}}}
tables:
  t:
    query: {query}
    output_mode: {mode}
    trigger: available_now
{f"    sink: {sink}" if sink else ""}
{more}""")


def feed(kit, *rows):
    kit.feed("in", *(f'{{"k":"{k}","n":{n}}}' for k, n in rows))


# -- embedded ------------------------------------------------------------------------------------


def test_types_come_back_as_what_they_were(kit):
    feed(kit, ("a", 1))
    kit.run(
        pipeline(
            kit,
            """|
      SELECT k, n, CAST(n AS BIGINT) AS long, n / 2 AS half, n = 1 AS yes,
        CAST('12345678901234567.89' AS DECIMAL(20,2)) AS exact,
        DATE'2026-01-31' AS day, TIMESTAMP'2026-01-31 12:00:00.000001Z' AS at,
        TIMESTAMP_NTZ'2026-01-31 12:00:00' AS local, unhex('00FF') AS bytes,
        array(1, 2) AS list, map('a', 1) AS pairs, named_struct('x', 1, 'y', 'z') AS both,
        CAST(NULL AS INT) AS nothing FROM s""",
        )
    )
    assert kit.rows("t") == [(
        "a", 1, 1, 0.5, True, decimal.Decimal("12345678901234567.89"), dt.date(2026, 1, 31),
        dt.datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC), dt.datetime(2026, 1, 31, 12, 0),
        b"\x00\xff", [1, 2], {"a": 1}, {"x": 1, "y": "z"}, None,
    )]  # fmt: skip


def test_text_survives_whatever_is_in_it(kit):
    texts = [
        "",
        "NULL",
        "ünïcödé 漢字 🦆",
        "line\\nbreak",
        "quote ' \\\" ; DROP TABLE t",
        "\\u0007",
    ]
    for text in texts:
        kit.feed("in", f'{{"k":"{text}","n":1}}')
    kit.run(pipeline(kit, "SELECT k FROM s"))
    import json

    assert {k for (k,) in kit.rows("t")} == {json.loads(f'"{t}"') for t in texts}


def test_odd_column_and_table_names(kit):
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, 'SELECT k AS `select`, n AS `a "b" c` FROM s'))
    assert kit.rows("t", '"select", "a ""b"" c"') == [("a", 1)]


def test_columns_that_differ_in_case_only_are_refused(kit):
    feed(kit, ("a", 1))
    with pytest.raises(EvertableError, match="SINK_COLUMNS"):
        kit.run(pipeline(kit, "SELECT k, n AS K FROM s"))


def test_update_with_a_key_of_the_users(kit):
    feed(kit, ("a", 1), ("b", 1))
    p = pipeline(kit, "SELECT k, n FROM s", mode="update", more="    key: k")
    kit.run(p)
    feed(kit, ("a", 9))
    kit.run(p)
    assert kit.rows("t") == [("a", 9), ("b", 1)]


def test_update_without_a_key_is_refused_before_the_start(kit):
    feed(kit, ("a", 1))
    with pytest.raises(EvertableError, match="KEY_MISSING"):
        kit.run(pipeline(kit, "SELECT k, n FROM s", mode="update"))
    with pytest.raises(EvertableError, match="KEY_MISSING"):
        kit.run(pipeline(kit, "SELECT count(*) AS n FROM s GROUP BY k", mode="update"))
    assert not (kit.folder / ".evertable/p/tables/t.sqlite").exists()


def test_a_key_twice_in_one_batch_is_refused_and_nothing_of_it_is_kept(kit):
    feed(kit, ("a", 1), ("a", 2))
    p = pipeline(kit, "SELECT k, n FROM s", mode="update", more="    key: [k]")
    with pytest.raises(Exception, match="KEY_TWICE"):
        kit.run(p)
    assert kit.rows("t") == []


def test_an_edit_that_changes_a_type_is_refused_and_other_columns_come_and_go(kit):
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, "SELECT k FROM s"))
    fixed = "    on_schema_change: fail"
    with pytest.raises(EvertableError, match="CHECKPOINT_FAILS"):
        kit.run(pipeline(kit, "SELECT k, n FROM s", more=fixed))
    feed(kit, ("b", 2))
    kit.run(pipeline(kit, "SELECT k, n FROM s"))
    with pytest.raises(EvertableError, match="CHECKPOINT_FAILS"):
        kit.run(pipeline(kit, "SELECT k, CAST(n AS STRING) AS n FROM s"))
    feed(kit, ("c", 3))
    kit.run(pipeline(kit, "SELECT n FROM s"))
    assert kit.rows("t", "k, n") == [("a", None), ("b", 2), (None, 3)]


@pytest.mark.long
def test_readers_in_other_processes_see_whole_batches_only(kit):
    """A reader in a loop while 60 batches of 50 rows are written: no error, no torn batch."""
    for n in range(60):
        feed(kit, *((f"k{n}", n) for _ in range(50)))
    p = pipeline(kit, "SELECT k, n FROM s")
    file = kit.folder / ".evertable/p/tables/t.sqlite"
    seen, torn, errors = [], [], []
    done = threading.Event()

    def read():
        while not done.is_set():
            if not file.exists():
                continue
            try:
                connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
                (count,) = connection.execute("SELECT count(*) FROM t").fetchone()
                connection.close()
                seen.append(count)
                if count % 50:
                    torn.append(count)
            except sqlite3.OperationalError as e:
                if "no such table" not in str(e):
                    errors.append(e)

    reader = threading.Thread(target=read)
    reader.start()
    kit.run(p)
    done.set()
    reader.join()
    assert len(kit.rows("t")) == 3000
    assert len(seen) > 100
    assert not torn
    assert not errors


def test_a_writer_that_was_taken_over_can_commit_nothing(kit):
    from evertable.model.ledger import LedgerEntry
    from evertable.model.storage import Storage
    from evertable.sinks.embedded import EmbeddedSink

    feed(kit, ("a", 1))
    p = pipeline(kit, "SELECT k FROM s")
    sink = EmbeddedSink(Storage.of(p).table_file("t"))
    frame = kit.spark.sql("SELECT 'a' AS k")
    old = sink.open(p.tables[0], "q")
    old.prepare(frame.schema, "append", [])
    new = sink.open(p.tables[0], "q")
    new.prepare(frame.schema, "append", [])
    with pytest.raises(EvertableError, match="SINK_FENCED"):
        old.write(frame, LedgerEntry("q", 0, "d"), "append", [], lambda: None)
    assert kit.rows("t") == []
    new.write(frame, LedgerEntry("q", 0, "d"), "append", [], lambda: None)
    assert kit.rows("t") == [("a",)]
    old.close()
    new.close()


def test_storage_is_for_its_owner_only(kit):
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, "SELECT k FROM s"))
    for folder in (kit.folder / ".evertable", kit.folder / ".evertable/p"):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


# -- others --------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "orc", "json", "csv", "avro", "xml"])
def test_files(kit, format):
    feed(kit, ("a", 1))
    feed(kit, ("b", 2))
    tag = ", rowTag: row" if format == "xml" else ""
    kit.run(pipeline(kit, "SELECT k, n FROM s", f"{{format: {format}, path: out{tag}}}"))
    reader = kit.spark.read.format(format).schema("k STRING, n INT")
    read = reader.options(**({"rowTag": "row"} if tag else {})).load(str(kit.folder / "out"))
    assert sorted(map(tuple, read.collect())) == [("a", 1), ("b", 2)]


def test_text_files_out(kit):
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, "SELECT concat(k, n) AS value FROM s", "{format: text, path: out}"))
    assert [r[0] for r in kit.spark.read.text(str(kit.folder / "out")).collect()] == ["a1"]


def test_partitioned_files(kit):
    feed(kit, ("a", 1), ("b", 2))
    kit.run(
        pipeline(
            kit, "SELECT k, n FROM s", "{format: parquet, path: out}", more="    partition_by: k"
        )
    )
    assert (kit.folder / "out/k=a").is_dir()
    assert (kit.folder / "out/k=b").is_dir()
    read = kit.spark.read.parquet(str(kit.folder / "out"))
    assert sorted(map(tuple, read.select("k", "n").collect())) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
def test_console_shows_each_batch(kit, mode):
    feed(kit, ("a", 1))
    query = "SELECT k, n FROM s" if mode == "append" else "SELECT k, sum(n) AS n FROM s GROUP BY k"
    kit.run(pipeline(kit, query, "console", mode))
    assert [rows for _, _, rows in kit.shown if rows] == [[{"k": "a", "n": 1}]]


def test_noop(kit):
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, "SELECT k, n FROM s", "noop"))
    assert sum(e.rows_in for e in kit.events if hasattr(e, "rows_in")) == 1


@pytest.mark.parametrize("mode", ["append", "complete", "update"])
def test_memory(kit, mode):
    feed(kit, ("a", 1))
    query = "SELECT k, n FROM s" if mode == "append" else "SELECT k, sum(n) AS n FROM s GROUP BY k"
    runner = kit.run(pipeline(kit, query, "memory", mode))
    assert [tuple(r) for r in runner.runs[0].session.table("t").collect()] == [("a", 1)]


def test_a_python_function_per_batch(kit):
    kit.write(
        "out.py",
        """
        import json
        from pathlib import Path

        def send(batch, number):
            rows = [row.asDict() for row in batch.collect()]
            with Path(__file__).with_name("sent.jsonl").open("a") as file:
                file.write(json.dumps([number, rows]) + "\\n")
    """,
    )
    feed(kit, ("a", 1))
    feed(kit, ("b", 2))
    p = pipeline(kit, "SELECT k, n FROM s", '{format: python, call: "out.py:send"}')
    kit.run(p)
    kit.run(p)  # nothing new: nothing is sent
    import json

    sent = [json.loads(line) for line in (kit.folder / "sent.jsonl").read_text().splitlines()]
    assert sent == [[0, [{"k": "a", "n": 1}]], [1, [{"k": "b", "n": 2}]]]


def test_a_failing_python_function_is_the_users_own_line(kit):
    kit.write(
        "bad.py",
        """
        def send(batch, number):
            batch.collect()
            raise ValueError("no such customer")
    """,
    )
    feed(kit, ("a", 1))
    p = pipeline(kit, "SELECT k, n FROM s", '{format: python, call: "bad.py:send"}')
    with pytest.raises(Exception, match="USER_CODE_FAILED bad.py:3.*no such customer"):
        kit.run(p)


def test_a_python_function_that_reads_nothing_is_told_what_it_did(kit):
    kit.write("lazy.py", "def send(batch, number):\n    pass\n")
    feed(kit, ("a", 1))
    p = pipeline(
        kit,
        "SELECT k, sum(n) AS n FROM s GROUP BY k",
        '{format: python, call: "lazy.py:send"}',
        "update",
    )
    with pytest.raises(Exception, match="BATCH_NOT_EVALUATED"):
        kit.run(p)


def test_only_one_of_two_tables_fails_and_the_other_goes_on(kit):
    kit.write("bad.py", "def send(batch, number):\n    batch.collect()\n    1 / 0\n")
    feed(kit, ("a", 1))
    p = kit.yaml("""
name: p
streams:
  s: {format: json, path: in, schema: "k STRING, n INT"}
tables:
  good: {query: SELECT k FROM s, trigger: available_now}
  bad: {query: SELECT k FROM s, trigger: available_now, sink: {format: python, call: "bad.py:send"}}
""")
    runner = Runner(p, spark=kit.spark)
    runner.start()
    runner.wait()
    assert [r.table.name for r in runner.failed()] == ["bad"]
    assert kit.rows("good") == [("a",)]


# -- what would go wrong in silence ----------------------------------------------------------------


def test_a_grouping_by_nothing_is_one_row(kit):
    p = pipeline(kit, "SELECT count(*) AS c, sum(n) AS n FROM s", mode="update")
    for n in (1, 2, 3):
        feed(kit, ("a", n))
    kit.run(p)
    assert kit.rows("t") == [(3, 6)]


def test_nan_null_and_infinity_are_three_groups(kit):
    query = """|
      SELECT CASE k WHEN 'nan' THEN double('NaN') WHEN 'inf' THEN double('Infinity') END AS f,
             count(*) AS c FROM s GROUP BY 1"""
    feed(kit, ("nan", 1), ("null", 1), ("inf", 1))
    feed(kit, ("nan", 1))
    kit.run(pipeline(kit, query, mode="update"))
    assert kit.rows("t") == sorted([("NaN", 2), (None, 1), (float("inf"), 1)], key=repr)


def test_decimals_and_times_compare_as_what_they_are(kit):
    from evertable.model.storage import Storage
    from evertable.sinks.embedded.reader import query

    for n in (9, 10, 100, -5):
        feed(kit, ("a", n))
    p = pipeline(
        kit,
        """|
      SELECT CAST(n AS DECIMAL(10,2)) AS d, timestamp_seconds(n) AS at FROM s WHERE n > 0
      UNION ALL SELECT CAST(n AS DECIMAL(10,2)), timestamp_micros(-1) FROM s WHERE n <= 0""",
    )
    kit.run(p)
    files = {"t": Storage.of(p).table_file("t")}

    def column(sql):
        return [str(row[0]) for row in query(sql, files).rows]

    assert column("SELECT d FROM t WHERE d > 10") == ["100.00"]
    assert column("SELECT d FROM t ORDER BY d") == ["-5.00", "9.00", "10.00", "100.00"]
    assert column("SELECT max(d) FROM t") == ["100.00"]
    assert column("SELECT d FROM t WHERE at = '1970-01-01 00:00:09'") == ["9.00"]
    assert column("SELECT d FROM t WHERE at >= '1970-01-01 00:00:10' ORDER BY d") == [
        "10.00",
        "100.00",
    ]
    assert column("SELECT d FROM t WHERE at < '1970-01-01'") == ["-5.00"]


def test_bytes_that_are_no_text_do_not_end_the_table(kit):
    (kit.folder / "in").mkdir()
    (kit.folder / "in/1.txt").write_bytes(b"caf\xe9\n")
    p = kit.yaml("""
name: p
streams:
  s: {format: text, path: in}
tables:
  t: {query: SELECT value FROM s, trigger: available_now}
""")
    kit.run(p)
    assert kit.rows("t") == [("caf\ufffd",)]


GROUPED = "SELECT k, count(*) AS c FROM s GROUP BY k"


@pytest.mark.parametrize(
    ("query", "mode", "more", "code"),
    [
        (GROUPED, "update", "    key: [k, c]", "KEY_DIFFERS"),
        ("SELECT k, n, count(*) AS c FROM s GROUP BY k, n", "update", "    key: k", "KEY_DIFFERS"),
        (f"{GROUPED} HAVING count(*) < 3", "update", "", "FILTER_AFTER_GROUPING"),
        (f"SELECT * FROM ({GROUPED}) WHERE c < 3", "update", "", "FILTER_AFTER_GROUPING"),
        ("SELECT k, k FROM s", "append", "", "SINK_COLUMNS"),
        ("SELECT INTERVAL 1 MONTH AS i FROM s", "append", "", "SINK_COLUMNS"),
        ("INSERT OVERWRITE DIRECTORY 'x' USING json SELECT 1", "append", "", "SQL_INVALID"),
        ("CREATE TABLE x AS SELECT 1", "append", "", "SQL_INVALID"),
    ],
)
def test_what_would_go_wrong_later_is_refused_before_the_start(kit, query, mode, more, code):
    feed(kit, ("a", 1))
    with pytest.raises(EvertableError, match=code):
        kit.run(pipeline(kit, query, mode=mode, more=more))
    assert not (kit.folder / "x").exists()


def test_partition_by_names_a_column(kit):
    feed(kit, ("a", 1))
    sink = "{format: parquet, path: out}"
    with pytest.raises(EvertableError, match="SINK_COLUMNS"):
        kit.run(pipeline(kit, "SELECT k FROM s", sink, more="    partition_by: kk"))


def test_a_with_clause_keeps_the_key_of_its_grouping(kit):
    feed(kit, ("a", 1))
    feed(kit, ("a", 1))
    query = "WITH x AS (SELECT k FROM s) SELECT k, count(*) AS c FROM x GROUP BY k"
    kit.run(pipeline(kit, query, mode="update"))
    assert kit.rows("t") == [("a", 2)]


def test_an_edit_of_mode_or_key_is_refused(kit):
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, GROUPED, mode="update"))
    with pytest.raises(EvertableError, match="CHECKPOINT_FAILS"):
        kit.run(pipeline(kit, "SELECT k, CAST(n AS BIGINT) AS c FROM s"))


@pytest.mark.parametrize("path", ["Path: out", "path: 'file:HERE/out'"])
def test_a_file_sink_is_protected_however_its_path_is_written(kit, path):
    import shutil

    feed(kit, ("a", 1))
    sink = "{format: CSV, " + path.replace("HERE", str(kit.folder)) + "}"
    p = pipeline(kit, "SELECT k FROM s", sink)
    kit.run(p)
    assert (kit.folder / "out/_spark_metadata/0").exists()
    kit.run(p)
    shutil.rmtree(kit.folder / ".evertable/p/checkpoints/t")
    with pytest.raises(EvertableError, match="TARGET_OWNED"):
        kit.run(p)
