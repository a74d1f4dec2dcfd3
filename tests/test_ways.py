"""The ways forward after an edit: each ends with the rows that it promises."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from evertable.cli.main import main
from evertable.errors import AnswerNeeded, EvertableError, Refused
from evertable.model.storage import Storage
from evertable.plan.keeping import Keeping
from evertable.project import open_pipeline
from evertable.run.planning import Planning
from evertable.run.plans import plans_against, plans_of
from evertable.sinks.embedded.reader import query
from evertable.spark.checkpoint import Checkpoint

PIPELINE = """
name: p
streams:
  s:
    format: json
    path: in
    schema: "k STRING, u STRING, at TIMESTAMP, n INT"
    watermark: {column: at, delay: 10 minutes}
tables:
  t:
    query: QUERY
    output_mode: MODE
    trigger: available_now
MORE"""
BY_K = "SELECT k, sum(n) AS v FROM s GROUP BY k"
BY_U = "SELECT u AS k, sum(n) AS v FROM s GROUP BY u"
WINDOWS = "SELECT window.start AS w, k, sum(n) AS v FROM s GROUP BY window(at, '10 minutes'), k"
LONGER = WINDOWS.replace("10 minutes", "20 minutes")


def pipeline(kit, sql, mode="update", more=""):
    text = PIPELINE.replace("QUERY", sql).replace("MODE", mode).replace("MORE", more)
    return kit.yaml(text)


def feed(kit, *rows):
    lines = [{"k": k, "u": u, "at": f"2026-01-01T{at}:00Z", "n": n} for k, u, at, n in rows]
    kit.feed("in", *map(json.dumps, lines))


FIRST = [("x", "y", "12:01", 1), ("y", "y", "12:03", 2), ("x", "x", "12:16", 4)]
THEN = [("x", "y", "12:17", 8), ("z", "x", "12:18", 16), ("q", "q", "14:00", 32)]


@pytest.fixture
def edited(kit):
    """A table by k that has run, and the edit that groups by u."""
    feed(kit, *FIRST)
    kit.run(pipeline(kit, BY_K))
    feed(kit, *THEN)
    return pipeline(kit, BY_U)


def snapshot(folder):
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*")}


def verdicts(kit, model):
    return {j.table: j for j in plans_of(model, str(kit.folder / "logs"), kit.spark)}


# -- refused, and answered -------------------------------------------------------------------------


def test_an_edit_that_would_corrupt_is_refused_before_anything_starts(kit, edited):
    before = snapshot(kit.folder / ".evertable/p/checkpoints")
    with pytest.raises(Refused, match="CHECKPOINT_CORRUPTS") as refused:
        kit.run(edited)
    (finding,) = refused.value.findings
    assert str(finding.place).startswith("p.yaml:10")
    assert "a group key is replaced by one of the same type" in finding.message
    assert "- k" in finding.detail
    assert "+ u" in finding.detail
    for way in ("keep_old", "beside", "start_over", "rebuild"):
        assert way in finding.hint
    assert "accept" not in finding.hint
    assert snapshot(kit.folder / ".evertable/p/checkpoints") == before
    assert kit.rows("t") == [("x", 5), ("y", 2)]


def test_a_way_that_is_none_for_this_verdict_is_refused(kit, edited):
    with pytest.raises(Refused, match="ANSWER_NOT_OFFERED"):
        kit.run(edited, answer="t=accept")
    with pytest.raises(EvertableError, match="COMMAND_INVALID"):
        kit.run(edited, answer="t=drain")


def test_keep_old_goes_on_with_the_old_query_as_long_as_the_edit_stands(kit, edited):
    kit.run(edited, answer="t=keep_old")
    assert kit.rows("t") == [("q", 32), ("x", 13), ("y", 2), ("z", 16)]
    feed(kit, ("x", "q", "14:01", 100))
    kit.run(pipeline(kit, BY_U))  # the answer is kept
    assert kit.rows("t") == [("q", 32), ("x", 113), ("y", 2), ("z", 16)]
    with pytest.raises(Refused, match="CHECKPOINT_"):  # and holds for no other edit
        kit.run(pipeline(kit, BY_U.replace("sum", "max")))
    kit.run(pipeline(kit, BY_K))  # the edit is taken back
    assert not os.path.exists(Storage.of(edited).answers("t"))


def test_accept_lets_open_windows_come_out_as_they_are(kit):
    feed(kit, *FIRST)
    kit.run(pipeline(kit, WINDOWS, "append"))
    assert kit.rows("t", "v") == []  # the watermark is at 12:06
    feed(kit, *THEN)
    edited = pipeline(kit, LONGER, "append")
    with pytest.raises(AnswerNeeded, match="CHECKPOINT_MIXED"):
        kit.run(edited)
    kit.run(edited, answer="t=accept")
    assert kit.rows("t", "substr(w, 12, 5), k, v") == [
        ("12:00", "x", 1), ("12:00", "x", 8), ("12:00", "y", 2), ("12:00", "z", 16),
        ("12:10", "x", 4),
    ]  # fmt: skip
    assert verdicts(kit, edited)["t"].verdict == "same"


def test_beside_runs_both(kit, edited):
    kit.run(edited, answer="t=beside:t_by_u")
    assert kit.rows("t") == [("q", 32), ("x", 13), ("y", 2), ("z", 16)]
    file = Storage.of(edited).table_file("t_by_u")
    found = query("SELECT * FROM t_by_u", {"t_by_u": file}).rows
    assert sorted(found) == [("q", 32), ("x", 20), ("y", 11)]


@pytest.mark.parametrize(
    ("position", "rows"),
    [
        ("old", [("q", 32), ("x", 16), ("y", 8)]),
        ("earliest", [("q", 32), ("x", 20), ("y", 11)]),
        ("latest", [("x", 5), ("y", 2)]),
        ("2001-01-01T00:00:00Z", [("q", 32), ("x", 20), ("y", 11)]),
    ],
)
def test_start_over_begins_where_it_is_told(kit, edited, position, rows):
    kit.run(edited, answer=f"t=start_over:{position}")
    assert kit.rows("t") == rows  # rows of before stay until their key comes again
    feed(kit, ("a", "new", "14:00", 1))
    kit.run(pipeline(kit, BY_U))
    assert kit.rows("t") == sorted([*rows, ("new", 1)])
    assert os.path.isdir(Storage.of(edited).checkpoint("t") + ".old-1")


@pytest.mark.parametrize(
    ("position", "values"), [("old", [8, 16]), ("earliest", [1, 2, 4, 8, 16]), ("latest", [])]
)
def test_start_over_of_a_topic(kit, kafka, position, values):
    topic = kafka.topic("in")
    text = f"""
name: p
streams:
  s:
    format: kafka
    options:
      kafka.bootstrap.servers: "{kafka.address}"
      subscribe: {topic}
      startingOffsets: earliest
tables:
  t:
    query: SELECT CAST(CAST(value AS STRING) AS INT) AS v, count(*) AS n FROM s GROUP BY 1
    output_mode: complete
    trigger: available_now
"""
    kafka.produce(topic, "1", "2", "4")
    kit.run(kit.yaml(text))
    kafka.produce(topic, "8", "16")
    edited = kit.yaml(text.replace("count(*)", "max(offset)"))
    kit.run(edited, answer=f"t=start_over:{position}")
    assert sorted(v for (v,) in kit.rows("t", "v")) == values or position == "latest"
    kafka.produce(topic, "99")
    kit.run(kit.yaml(text.replace("count(*)", "max(offset)")))
    assert sorted(v for (v,) in kit.rows("t", "v")) == [*values, 99]


# -- rebuild ---------------------------------------------------------------------------------------


def test_a_rebuilt_table_is_as_if_it_had_always_been_so(kit, edited):
    feed(kit, ("x", "w", "14:01", 64))
    kit.run(edited, answer="t=rebuild")
    assert kit.rows("t") == [("q", 32), ("w", 64), ("x", 20), ("y", 11)]
    old = Storage.of(edited).table_file("t").replace(".sqlite", ".old-1.sqlite")
    assert sorted(sqlite3.connect(old).execute("SELECT * FROM t")) == [("x", 5), ("y", 2)]
    assert verdicts(kit, edited)["t"].verdict == "same"
    feed(kit, ("x", "w", "14:02", 1))
    kit.run(pipeline(kit, BY_U))
    assert kit.rows("t") == [("q", 32), ("w", 65), ("x", 20), ("y", 11)]
    assert [line.event for line in Planning(edited, edited.tables[0]).keeping.history()] == [
        "started", "rebuilt", "started", "started",
    ]  # fmt: skip


def test_whoever_reads_sees_the_old_table_or_the_new_one(kit):
    feed(kit, *[(f"k{n}", f"u{n}", "12:00", 1) for n in range(3_000)])
    kit.run(pipeline(kit, BY_K))
    edited = pipeline(kit, BY_U)
    file = Storage.of(edited).table_file("t")
    seen, ended = set(), threading.Event()

    def read():
        while not ended.is_set():
            rows = query("SELECT substr(k, 1, 1), count(*) FROM t GROUP BY 1", {"t": file}).rows
            seen.add(tuple(rows))

    reader = threading.Thread(target=read)
    reader.start()
    kit.run(edited, answer="t=rebuild")
    ended.set()
    reader.join()
    read_last = tuple(query("SELECT substr(k, 1, 1), count(*) FROM t GROUP BY 1", {"t": file}).rows)
    assert seen | {read_last} == {(("k", 3_000),), (("u", 3_000),)}


def test_a_table_of_postgres_is_rebuilt_in_one_transaction(kit, postgres):
    import psycopg2

    more = f'    sink: {{format: postgres, url: "{postgres.url}", table: rebuilt}}\n'
    feed(kit, *FIRST)
    kit.run(pipeline(kit, BY_K, more=more))
    feed(kit, *THEN)
    kit.run(pipeline(kit, BY_U, more=more), answer="t=rebuild")
    connection = psycopg2.connect(postgres.url)
    cursor = connection.cursor()
    cursor.execute("SELECT * FROM rebuilt ORDER BY 1")
    assert cursor.fetchall() == [("q", 32), ("x", 20), ("y", 11)]
    cursor.execute("SELECT * FROM rebuilt__old_1 ORDER BY 1")
    assert cursor.fetchall() == [("x", 5), ("y", 2)]
    connection.close()
    feed(kit, ("x", "w", "14:02", 1))
    kit.run(pipeline(kit, BY_U, more=more))


# -- manifests, history, other checkpoints ---------------------------------------------------------


def test_a_start_that_failed_has_changed_no_manifest(kit):
    feed(kit, *FIRST)
    kit.run(pipeline(kit, BY_K))

    def fails(point, table, batch):
        raise RuntimeError("no")

    feed(kit, *THEN)
    more = BY_K.replace("sum(n)", "sum(n) * 10")
    with pytest.raises(Exception, match="no"):
        kit.run(pipeline(kit, more), at=fails)
    model = pipeline(kit, BY_K)
    planning = Planning(model, model.tables[0])
    newest = planning.keeping.newest(planning.standing())
    assert newest.manifest.definition["table"]["query"]["sql"] == BY_K
    # The batch was begun by the edit, and a sink may have it: going back is an edit, too.
    assert verdicts(kit, model)["t"].verdict == "note"
    assert verdicts(kit, pipeline(kit, more))["t"].goes_on


def test_manifests_are_small_few_and_without_secrets(kit, monkeypatch):
    monkeypatch.setenv("CANARY", "canary-secret-in-a-manifest")
    columns = ", ".join(f"n + {n} AS c{n}" for n in range(400))
    feed(kit, *FIRST)
    sink = '    sink: {format: python, call: "f.py:take", token: "${secret:CANARY}"}\n'
    kit.write(
        "f.py",
        """
    class take:
        guarantee = "at least once"
        def __init__(self, **options): pass
        def open(self, table, query_id): return self
        last = None
        def prepare(self, schema, mode, keys): pass
        def write(self, rows, entry, mode, keys, written): rows.collect(); written()
        def maintain(self): return ()
        def close(self): pass
    """,
    )
    model = pipeline(kit, f"SELECT k, {columns} FROM s", "append", sink)
    kit.run(model)
    folder = Storage.of(model).manifests("t")
    files = [os.path.join(folder, name) for name in os.listdir(folder)]
    assert all(os.path.getsize(f) < 21_000 for f in files)
    assert all("canary-secret" not in Path(f).read_text() for f in files)
    wide = pipeline(kit, f"SELECT k, {columns.replace('n + 7 ', 'n + 8 ')} FROM s", "append", sink)
    assert verdicts(kit, model)["t"].verdict == "same"
    assert verdicts(kit, wide)["t"].verdict == "safe"
    monkeypatch.setenv("CANARY", "another-value")
    assert [c.code for c in verdicts(kit, model)["t"].changes] == ["SECRET_CHANGED"]


def test_the_last_fifty_versions_are_kept(tmp_path):
    from evertable.model.standing import Standing
    from evertable.plan.manifest import Manifest

    keeping = Keeping(str(tmp_path / "t"))
    for n in range(60):
        standing = Standing("q", n - 1, n - 1)
        keeping.begin(Manifest("t", settings={"n": str(n)}), standing)
    names = [n for n in os.listdir(tmp_path / "t") if n[:-5].isdigit()]
    assert len(names) == 50
    newest = keeping.newest(Standing("q", 59, 59))
    assert newest.manifest.settings["n"] == "59"
    assert len(keeping.history()) == 60


def test_a_checkpoint_of_five_gigabytes_is_planned_as_fast(kit, edited):
    import time

    folder = Checkpoint(Storage.of(edited).checkpoint("t")).folder
    begun = time.monotonic()
    verdicts(kit, edited)
    small = time.monotonic() - begun
    for partition in (0, 1):
        with open(f"{folder}/state/0/{partition}/9.zip", "wb") as file:
            file.truncate(5 * 1024**3)
    begun = time.monotonic()
    assert verdicts(kit, edited)["t"].verdict == "corrupts"
    assert time.monotonic() - begun < small + 1


def test_a_query_of_plain_spark_is_adopted(kit, capsys, monkeypatch):
    feed(kit, *FIRST)
    schema = "k STRING, u STRING, at TIMESTAMP, n INT"
    session = kit.spark.newSession()
    session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "false")
    frame = session.readStream.schema(schema).json(str(kit.folder / "in"))
    frame.createOrReplaceTempView("s")
    writer = session.sql(BY_K).writeStream.outputMode("update").format("noop")
    plain = writer.option("checkpointLocation", str(kit.folder / "plain"))
    plain.trigger(availableNow=True).start().awaitTermination()
    model = pipeline(kit, BY_K)
    from evertable.run import adopting

    monkeypatch.setattr(adopting, "open_spark", lambda *a, **k: kit.spark)
    assert main(["adopt", "plain", "--table", "t"]) == 0
    assert "goes on at batch 1" in capsys.readouterr().out
    feed(kit, *THEN)
    kit.run(model)
    assert kit.rows("t") == [("q", 32), ("x", 13), ("z", 16)]  # y came before, and not again
    assert main(["adopt", "plain", "--table", "t"]) == 1  # it has a checkpoint now
    assert main(["adopt", "in", "--table", "t"]) == 1


def test_another_query_is_not_adopted_where_spark_refuses(kit):
    feed(kit, *FIRST)
    kit.run(pipeline(kit, BY_K))
    model = pipeline(kit, BY_K.replace("sum(n) AS v", "avg(n) AS v"))
    Planning(model, model.tables[0])
    import shutil

    shutil.rmtree(Storage.of(model).manifests("t"))
    judged = verdicts(kit, model)["t"]
    assert (judged.verdict, judged.changes[0].code) == ("fails", "RESTART_REFUSED")
    model = pipeline(kit, BY_U)
    judged = verdicts(kit, model)["t"]  # what the types do not tell is said to be unknown
    assert (judged.verdict, judged.changes[0].code) == ("note", "PLAN_NOT_COMPARED")


def test_against_another_revision_no_checkpoint_is_needed(kit, monkeypatch):
    def git(*words):
        subprocess.run(["git", "-C", str(kit.folder), *words], check=True, capture_output=True)

    (kit.folder / "in").mkdir()
    pipeline(kit, BY_K)
    git("init", "-q")
    git("add", "p.yaml")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    from evertable.cli.revision import checked_out

    for sql, verdict in (
        (BY_K, "same"), (BY_U, "corrupts"), (BY_K.replace("sum", "avg"), "fails"),
        (BY_K.replace("sum(n)", "sum(n) * 2"), "note"),
    ):  # fmt: skip
        model = pipeline(kit, sql)
        with checked_out("p.yaml", "HEAD") as then:
            (judged,) = plans_against(
                open_pipeline(then), model, str(kit.folder / "logs"), kit.spark
            )
        assert judged.verdict == verdict, judged.changes
    with pytest.raises(EvertableError, match="REVISION_UNKNOWN"), checked_out("p.yaml", "nowhere"):
        pass


# -- the command -----------------------------------------------------------------------------------


def test_plan_says_the_verdict_and_exits_by_it(kit, edited, capsys, monkeypatch):
    from evertable.run import plans

    monkeypatch.setattr(plans, "open_spark", lambda *a, **k: kit.spark)
    before = snapshot(kit.folder)
    assert main(["plan"]) == 1
    said = capsys.readouterr().out
    assert "✗ corrupts  t" in said
    assert "CHECKPOINT_CORRUPTS p.yaml:10" in said
    assert {k: v for k, v in snapshot(kit.folder).items() if "logs" not in k} == {
        k: v for k, v in before.items() if "logs" not in k
    }
    assert main(["plan", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "corrupts"
    (table,) = told["tables"]
    assert (table["name"], table["batch"]) == ("t", 2)
    assert [w["way"] for w in table["ways"]] == ["keep_old", "beside", "start_over", "rebuild"]
    assert main(["plan", "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith("::error file=p.yaml,line=10")
    assert main(["plan", "--answer", "t=keep_old"]) == 0
    capsys.readouterr()
    assert main(["plan"]) == 0  # it is answered
    assert "answered: keep_old" in capsys.readouterr().out
    assert main(["plan", "--answer", "u=keep_old"]) == 1
    assert main(["plan", "--answer", "t=keep"]) == 2


def test_what_is_mixed_asks_and_exits_3_where_nobody_is(kit, capsys, monkeypatch):
    from evertable.run import plans

    monkeypatch.setattr(plans, "open_spark", lambda *a, **k: kit.spark)
    feed(kit, *FIRST)
    kit.run(pipeline(kit, WINDOWS, "append"))
    pipeline(kit, LONGER, "append")
    assert main(["plan"]) == 3
    assert "accept" in capsys.readouterr().out
    pipeline(kit, WINDOWS, "append")
    assert main(["plan"]) == 0
    assert "nothing changed" in capsys.readouterr().out


def test_history_says_what_ran_with_which_answer(kit, edited, capsys):
    kit.run(edited, answer="t=start_over:earliest")
    assert main(["history", "t"]) == 0
    said = capsys.readouterr().out
    assert "start_over:earliest" in said
    assert BY_K in said
    assert BY_U in said
    assert main(["history", "t", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [r["event"] for r in runs] == ["started", "start_over", "started"]
    assert runs[0]["definition"]["table"]["query"]["sql"] == BY_K


def test_a_test_of_a_pipeline_hears_the_verdict(pipeline_of):
    text = PIPELINE.replace("MODE", "update").replace("MORE", "")
    p = pipeline_of(text.replace("QUERY", BY_K))
    p.push("s", [{"k": "x", "u": "y", "n": 1}])
    p.table("t")
    p.run_until_idle()
    p.restart(text.replace("QUERY", BY_U))
    assert p.verdict("t") == "corrupts"
    p.restart(text.replace("QUERY", BY_U.replace("sum(n) AS v", "sum(n) AS v /* of all */")))
    assert p.verdict("t") == "same"


def test_a_rule_is_tried_without_spark():
    from evertable.model.shape import Branch, Operator, Restart, Shape, Term
    from evertable.model.standing import Standing
    from evertable.plan.edit import Edit
    from evertable.plan.judge import judge
    from evertable.plan.manifest import Manifest

    def made(key, refused=""):
        branch = Branch(
            ("s",), (), "<s>", (Term(f"s.{key}:string", "string"),), (Term("count(*)"),)
        )
        result = Branch(("#0",), (), "<#0>", (), (Term("count(*)", "bigint", "n"),))
        shape = Shape((Operator(0, "aggregate", ((branch,),)),), (result,))
        return Manifest("t", "update", shape=shape)

    standing = Standing("q", 3, 3, True, keeps_state=True)
    assert judge(Edit(made("k"), made("k"), standing, Restart())).verdict == "same"
    assert judge(Edit(made("k"), made("u"), standing, Restart())).verdict == "corrupts"
    assert judge(Edit(made("k"), made("u"), standing, Restart("no"))).verdict == "fails"


def test_a_null_is_kept_out_by_conditions_that_need_a_value_only():
    from evertable.spark.conditions import together, without_implied

    told, loose = "IsNotNull(s.n:int)", "LessThan(Coalesce(s.n:int,0:int),5:int)"
    assert together((told, loose), ()) == (told, loose)
    assert together((told, "LessThan(s.n:int,5:int)"), ()) == ("LessThan(s.n:int,5:int)",)
    assert together((told, "In(s.n:int;1:int,2:int)"), ()) == ("In(s.n:int;1:int,2:int)",)
    ranged = "LessThan(TimestampAddInterval[@UTC](a.at:timestamp,5:interval),b.bt:timestamp)"
    assert without_implied(("IsNotNull(a.at:timestamp)", told), [ranged]) == (told,)


def test_prints_of_code_see_each_helper_and_no_layout(tmp_path, monkeypatch):
    import importlib
    import shutil

    from evertable.spark.code_prints import print_of
    from evertable.user_code import forget_modules

    monkeypatch.syspath_prepend(str(tmp_path))
    code = "import HELPER\n\nclass P:\n    def a(self, x):\n        return HELPER.one(x)\n\n" \
        "    def b(self, x):\n        return HELPER.two(x)\n\n" \
        "def inside(x):\n    from INNER import three\n    return three(x)\n"  # fmt: skip

    def prints(one="x", two="x * 2", three="x * 3", layout=""):
        for name, text in (
            ("helper_of_p", f"def one(x):\n    return {one}\n\ndef two(x):\n    return {two}\n"),
            ("inner_of_p", f"def three(x):\n    return {three}\n"),
            ("mine_of_p", code.replace("HELPER", "helper_of_p").replace("INNER", "inner_of_p")),
        ):
            (tmp_path / f"{name}.py").write_text(layout + text)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        forget_modules(str(tmp_path))
        importlib.invalidate_caches()
        module = importlib.import_module("mine_of_p")
        return print_of(module.P), print_of(module.inside)

    methods, function = prints()
    assert prints() == (methods, function)
    assert prints(layout="# moved\n\n") == (methods, function)
    assert prints(one="x + 1")[0] != methods
    assert prints(two="x * 300")[0] != methods
    assert prints(three="x * 30")[1] != function
