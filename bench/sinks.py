"""What sinks cost, beside what a careful hand would write: Postgres, embedded tables, Kafka.

    python bench/sinks.py [PAIRS]

All of it in one session, ours and theirs in turn on the same rows: six columns, made by Spark while
they are written; the DataFrame is there before, as it is when a stream hands over a batch. Every
pair begins with an empty table, or with one that has half of the keys.
"""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg2

from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import Query, SinkSpec, Table
from evertable.sinks import kafka_transactions
from evertable.sinks.embedded import sink as embedded
from evertable.sinks.postgres import PostgresSink
from evertable.spark import connectors
from evertable.spark import session as spark_session
from evertable.testing.broker import Broker
from evertable.testing.postgres import Postgres
from pairs import Measured, report

JDBC = connectors.read_lock(
    '{"jdbc": {"for": "the bench of sinks", "sets": [{"name": "pgjdbc", "jars": [{"artifact": '
    '"org.postgresql:postgresql:42.7.14", "sha256": '
    '"73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c"}]}]}}'
)["jdbc"]
COLUMNS = "id bigint, name text, place int, share double precision, at timestamptz, kind text"
NAMES = [column.split()[0] for column in COLUMNS.split(", ")]
MILLION = 1_000_000
SMALL, SMALL_BATCHES = 100, 30


def rows(spark, count: int):
    """The same plan each time, as the batches of a stream have: Spark compiles it once."""
    return spark.range(0, count, 1, 2).selectExpr(
        "id", "concat('name-', id) AS name", "CAST(id % 97 AS INT) AS place", "id / 3D AS share",
        "timestamp_micros(id * 1000) AS at", "concat('kind-', id % 11) AS kind",
    )  # fmt: skip


class Server:
    """A database, by a client of its own."""

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres

    def sql(self, text: str) -> list:
        with closing(psycopg2.connect(self.postgres.url)) as connection, connection:
            cursor = connection.cursor()
            cursor.execute(text)
            return cursor.fetchall() if cursor.description else []

    def fresh(self, table: str, key: bool, filled: int) -> None:
        self.sql(f"DROP TABLE IF EXISTS {table}; CREATE TABLE {table} ({COLUMNS})")
        if key:
            self.sql(f"CREATE UNIQUE INDEX ON {table} (id) NULLS NOT DISTINCT")
            self.sql(
                f"INSERT INTO {table} SELECT i * 2, 'old', 0, 0, now(), 'old' "
                f"FROM generate_series(0, {filled} - 1) i"
            )
        self.sql("CHECKPOINT")


class Ours:
    """A session of our sink, as a table that runs has it."""

    def __init__(self, server: Server, mode: str, staging: str = "never") -> None:
        self.mode = mode
        self.keys = ["id"] if mode == "update" else []
        self.query_id = uuid.uuid4().hex
        options = {"url": server.postgres.url, "table": "ours", "staging": staging}
        table = Table(name="ours", query=Query(sql=""), output_mode=mode)
        server.sql("DROP TABLE IF EXISTS _evertable_ledger")
        sink = PostgresSink(table, SinkSpec(format="postgres"), options, "bench/ours")
        self.session = sink.open(table, self.query_id)
        self.batch = 0
        self.prepared = False

    def write(self, frame) -> None:
        if not self.prepared:
            self.session.prepare(frame.schema, self.mode, self.keys)
            self.prepared = True
        entry = LedgerEntry(self.query_id, self.batch, "digest")
        self.session.write(frame, entry, self.mode, self.keys, lambda: None)
        self.batch += 1

    def close(self) -> None:
        self.session.close()


class Theirs:
    """Spark's JDBC writer; an upsert is JDBC into a staging table, then one merge."""

    def __init__(self, server: Server, mode: str) -> None:
        self.server = server
        self.mode = mode
        url = f"jdbc:postgresql://127.0.0.1:{server.postgres.port}/postgres"
        self.options = {
            "url": f"{url}?user=postgres&reWriteBatchedInserts=true",
            "driver": "org.postgresql.Driver", "batchsize": "10000",
        }  # fmt: skip

    def write(self, frame) -> None:
        into = "staged" if self.mode == "update" else "theirs"
        mode = "overwrite" if self.mode == "update" else "append"
        writer = frame.write.format("jdbc").options(**self.options, dbtable=into, truncate="true")
        writer.mode(mode).save()
        if self.mode == "update":
            names = ", ".join(NAMES)
            sets = ", ".join(f"{n} = EXCLUDED.{n}" for n in NAMES[1:])
            self.server.sql(
                f"INSERT INTO theirs ({names}) SELECT {names} FROM staged "
                f"ON CONFLICT (id) DO UPDATE SET {sets}"
            )

    def close(self) -> None: ...


def timed(action) -> Measured:
    begun, cpu = time.perf_counter(), tree_cpu()
    action()
    return Measured(time.perf_counter() - begun, tree_cpu() - cpu, 0)


def tree_cpu() -> float:
    """CPU seconds of this process and of all that it started, servers left out."""
    me = psutil.Process()
    total = 0.0
    for one in [me, *me.children(recursive=True)]:
        try:
            if one.name() != "postgres" and "kafka.Kafka" not in one.cmdline():
                times = one.cpu_times()
                total += times.user + times.system
        except psutil.Error:
            continue
    return total


def postgres_large(spark, server: Server, pairs: int, mode: str, staging: str) -> None:
    ours, theirs = [], []
    for number in range(pairs):
        for name in ("ours", "theirs")[:: 1 if number % 2 else -1]:  # each goes first in turn
            server.fresh(name, mode == "update", MILLION // 2)
            way = Ours(server, mode, staging) if name == "ours" else Theirs(server, mode)
            into = ours if name == "ours" else theirs
            frame = rows(spark, MILLION)
            into.append(timed(lambda way=way, frame=frame: way.write(frame)))
            way.close()
            ((count,),) = server.sql(f"SELECT count(*) FROM {name} WHERE kind <> 'old'")
            assert count == MILLION, (name, count)
    word = "append" if mode == "append" else "upsert"
    most = {
        ("append", "never"): 1 / 1.6, ("update", "never"): 1 / 1.3,
        ("append", "always"): 1 / 0.6, ("update", "always"): 1.0,
    }[mode, staging]  # fmt: skip
    how = "staged " if staging == "always" else ""
    print(report(f"postgres {how}{word} 1M", ours, theirs, "wall", most=most))
    print(report(f"postgres {how}{word} 1M", ours, theirs, "cpu"), flush=True)


def postgres_small(spark, server: Server, pairs: int, mode: str) -> None:
    ours, theirs = [], []
    for name in ("ours", "theirs"):
        server.fresh(name, mode == "update", 10_000)
    ways = {"ours": Ours(server, mode), "theirs": Theirs(server, mode)}
    for way in ways.values():  # the first ones plan and compile
        for _ in range(20):
            way.write(rows(spark, SMALL))
    for number in range(pairs):
        for name in ("ours", "theirs")[:: 1 if number % 2 else -1]:
            frames = [rows(spark, SMALL) for _ in range(SMALL_BATCHES)]
            found = [timed(lambda n=name, f=frame: ways[n].write(f)) for frame in frames]
            into = ours if name == "ours" else theirs
            into.append(Measured(statistics.median(m.wall for m in found), 1, 0))
    for way in ways.values():
        way.close()
    word = "append" if mode == "append" else "upsert"
    print(report(f"postgres {word} {SMALL} rows", ours, theirs, "wall", most=0.45), flush=True)


def embedded_small(spark, pairs: int) -> None:
    folder = tempfile.mkdtemp(prefix="sinks-")
    commits: list[float] = []
    plain = embedded.transaction

    @contextmanager
    def watched(connection):
        begun = time.perf_counter()
        with plain(connection):
            yield
        commits.append(time.perf_counter() - begun)

    embedded.transaction = watched
    table = Table(name="t", query=Query(sql=""))
    session = embedded.EmbeddedSink(f"{folder}/ours.sqlite").open(table, "q")
    session.prepare(rows(spark, 1).schema, "append", [])
    hand = sqlite3.connect(f"{folder}/theirs.sqlite", isolation_level=None)
    hand.execute("PRAGMA journal_mode=WAL")
    hand.execute("PRAGMA synchronous=FULL")
    hand.execute("CREATE TABLE t (id, name, place, share, at, kind)")

    def theirs_write(frame) -> None:
        found = frame.toArrow()
        columns = [
            [str(v) for v in c.to_pylist()] if n == "at" else c.to_pylist()
            for n, c in zip(NAMES, found.columns, strict=True)
        ]
        hand.execute("BEGIN IMMEDIATE")
        hand.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", zip(*columns, strict=True))
        hand.execute("COMMIT")

    batches = iter(range(1_000_000))

    def ours_write(frame) -> None:
        entry = LedgerEntry("q", next(batches), "d")
        session.write(frame, entry, "append", [], lambda: None)
        list(session.maintain())

    for _ in range(20):
        ours_write(rows(spark, SMALL))
        theirs_write(rows(spark, SMALL))
    commits.clear()
    ours, theirs = [], []
    for _ in range(pairs):
        mine, his = [], []
        for batch in range(SMALL_BATCHES):
            both = [(mine, ours_write), (his, theirs_write)]
            for into, write in both[:: 1 if batch % 2 else -1]:
                frame = rows(spark, SMALL)
                into.append(timed(lambda w=write, f=frame: w(f)).wall)
        ours.append(Measured(statistics.median(mine), 1, 0))
        theirs.append(Measured(statistics.median(his), 1, 0))
    middle, worst = (
        statistics.median(commits) * 1e3,
        sorted(commits)[int(len(commits) * 0.95)] * 1e3,
    )
    verdict = "met" if middle < 5 else "MISSED"
    print(f"embedded, {SMALL} rows: BEGIN to COMMIT {middle:.2f} ms, p95 {worst:.2f} ms; "
          f"under 5 ms: {verdict}")  # fmt: skip
    print(report(f"embedded, {SMALL} rows", ours, theirs, "wall", most=1.0), flush=True)
    shutil.rmtree(folder)


def kafka(spark, broker: Broker, pairs: int) -> None:
    text = "repeat(concat('v', id % 10), 50) AS value"
    frames = [spark.range(n * 250_000, (n + 1) * 250_000, 1, 2).selectExpr(text) for n in range(4)]
    ours, theirs = [], []
    for number in range(pairs + 1):
        for name in ("ours", "theirs")[:: 1 if number % 2 else -1]:
            topic = f"{name}{uuid.uuid4().hex[:8]}"
            broker.create_topic(topic, 2)
            if name == "ours":
                found = timed(lambda t=topic: into_transactions(broker, t, frames))
            else:
                found = timed(lambda t=topic: into_kafka(broker, t, frames))
            if number:  # the first pair warms both up
                (ours if name == "ours" else theirs).append(found)
    print(report("kafka 1M x 100 bytes", ours, theirs, "cpu", most=1.3))
    print(report("kafka 1M x 100 bytes", ours, theirs, "wall"), flush=True)


def into_transactions(broker: Broker, topic: str, frames) -> None:
    table = Table(name=topic, query=Query(sql=""))
    options = {"kafka.bootstrap.servers": broker.address, "topic": topic}
    about = kafka_transactions.About("bench", table, SinkSpec(format="kafka"), options)
    session = kafka_transactions.TransactionSink(about).open(table, "q")
    for batch, frame in enumerate(frames):
        session.write(frame, LedgerEntry("q", batch, "d"), "append", [], lambda: None)
    session.close()


def into_kafka(broker: Broker, topic: str, frames) -> None:
    for frame in frames:
        writer = frame.write.format("kafka").option("topic", topic)
        writer.option("kafka.bootstrap.servers", broker.address).save()


def memory() -> None:
    """The driver's memory while one batch is staged, of one and of five million rows."""
    with Postgres() as postgres:
        found = {}
        for millions in (1, 5):
            done = subprocess.run(
                [sys.executable, __file__, "--staged", postgres.url, str(millions)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            found[millions] = [int(n) for n in done.stdout.split()[-2:]]
    for what, index in (("Python", 0), ("JVM", 1)):
        one, five = found[1][index] / 1024, found[5][index] / 1024
        verdict = "met" if five <= one * 1.25 else "MISSED"
        print(f"postgres staged, peak memory of the driver's {what}: {one:.0f} MB for 1M rows, "
              f"{five:.0f} MB for 5M; flat: {verdict}")  # fmt: skip


def staged(url: str, millions: int) -> None:
    spark = start([])
    table = Table(name="ours", query=Query(sql=""))
    options = {"url": url, "table": f"flat{millions}", "staging": "always"}
    session = PostgresSink(table, SinkSpec(format="postgres"), options, "bench/m").open(table, "q")
    warm = rows(spark, 1000)
    session.prepare(warm.schema, "append", [])
    session.write(warm, LedgerEntry("q", 0, "d"), "append", [], lambda: None)
    frame = rows(spark, millions * MILLION)
    session.write(frame, LedgerEntry("q", 1, "d"), "append", [], lambda: None)
    java = next(p for p in psutil.Process().children(recursive=True) if p.name() == "java")
    status = Path(f"/proc/{java.pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, peak.split()[1])


def start(jars):
    confs = {"master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    logs = tempfile.mkdtemp(prefix="sinks-logs-")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return spark_session.start(confs, name="bench", root=".", logs=logs, jars=jars)


def main(pairs: int = 7) -> None:
    jars = [j for c in (JDBC, connectors.lock()["kafka"]) for j in connectors.get(c)]
    spark = start(jars)
    embedded_small(spark, pairs)
    with Postgres() as postgres:
        server = Server(postgres)
        for mode in ("append", "update"):
            postgres_small(spark, server, pairs, mode)
        for staging in ("never", "always"):
            for mode in ("append", "update"):
                postgres_large(spark, server, pairs, mode, staging)
    with Broker() as broker:
        kafka(spark, broker, pairs)
    spark.stop()
    memory()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--staged"]:
        staged(sys.argv[2], int(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))
