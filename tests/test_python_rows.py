"""Rows by the Python door: triggers, decodings, sources, sinks and keys that YAML's tests have."""

from __future__ import annotations

import json
import socket
import threading

import pytest
from pyspark.sql import functions as F

import evertable as et
from kit import wait_for

NOW = et.available_now()


@pytest.fixture
def p(kit):
    return et.Pipeline("p", storage=str(kit.folder / ".evertable"))


def finish(kit, p):
    p.start(spark=kit.spark).wait(60)


def rows(p, table="t"):
    """Tuples of an embedded table, sorted; none as long as there is no batch."""
    try:
        return sorted((tuple(row.values()) for row in p.table(table).rows()), key=repr)
    except et.EvertableError:
        return []


def until(kit, p, there):
    """Run until something is there, and stop."""
    p.start(spark=kit.spark)
    try:
        wait_for(lambda: not p.running or there())
    finally:
        p.stop()
    p.wait(0)  # raises what ended a table by itself


def texts(kit, p, *lines, one_a_batch=False, **keys):
    """A stream `s` of lines, each in a file of its own."""
    for line in lines:
        kit.feed("in", line)
    options = {"maxFilesPerTrigger": 1} if one_a_batch else {}
    p.stream("s", **{"format": "text", "path": str(kit.folder / "in"), "options": options, **keys})


# -- triggers ----------------------------------------------------------------------------------


def test_continuous_from_rate_into_memory(kit, p):
    p.stream("s", format="rate", options={"rowsPerSecond": 20, "numPartitions": 1})
    p.table("t", sql="SELECT value FROM s", trigger=et.continuous("1 second"), sink="memory")
    seen = []

    def there():
        seen[:] = rows(p)
        return len(seen) >= 10

    until(kit, p, there)
    assert sorted(seen) == [(n,) for n in range(len(seen))]


def test_real_time_from_kafka_into_kafka(kit, kafka, p):
    a, b = kafka.topic("a"), kafka.topic("b")
    kafka.produce(a, '{"ad":"x"}', '{"ad":"y"}')
    p.stream(
        "s",
        format="kafka",
        options={
            "kafka.bootstrap.servers": kafka.address,
            "subscribe": a,
            "startingOffsets": "earliest",
        },
        decode=et.json("ad STRING"),
    )

    @p.table(
        output_mode="update",
        trigger=et.real_time("5 seconds"),
        sink=et.kafka(kafka.address, topic=b),
        stop_timeout="100 milliseconds",  # its batch would go on for 5 seconds
    )
    def t(s):
        return s.select(F.upper("ad").alias("value"))

    p.start(spark=kit.spark)
    try:
        assert [m.value() for m in kafka.consume(b, 2)] == [b"X", b"Y"]
    finally:
        p.stop()
    p.wait(0)


# -- decoding ----------------------------------------------------------------------------------

DECODINGS = {
    "csv": (et.csv("ad STRING, n INT", sep=";"), ["a;1", "b;x"], [("a", 1), ("b", None)]),
    "text": (et.text(), ["a"], [("a",)]),
    "base64": (et.base64(), ["AQI=", "~~~"], [(None,), (b"\x01\x02",)]),
}


@pytest.mark.parametrize("name", DECODINGS)
def test_a_decoded_column(kit, p, name):
    decode, lines, expected = DECODINGS[name]
    texts(kit, p, *lines, decode=decode)
    p.table("t", sql="SELECT * FROM s", trigger=NOW)
    finish(kit, p)
    assert rows(p) == sorted(expected, key=repr)


# -- sources -----------------------------------------------------------------------------------


def test_a_socket_and_rate_micro_batch_side_by_side(kit, p):
    server = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve():
        client, _ = server.accept()
        client.sendall(b"hello\nworld\n")
        done.wait(60)
        client.close()

    threading.Thread(target=serve, daemon=True).start()
    address = {"host": "127.0.0.1", "port": server.getsockname()[1]}
    p.stream("lines", format="socket", options=address)
    p.table("t", sql="SELECT value FROM lines")
    p.stream("counted", format="rate-micro-batch", options={"rowsPerBatch": 5, "startTimestamp": 0})
    p.table("u", sql="SELECT value FROM counted", trigger=et.once())
    until(kit, p, lambda: len(rows(p)) == 2 and rows(p, "u"))
    done.set()
    assert rows(p) == [("hello",), ("world",)]
    assert rows(p, "u") == [(n,) for n in range(5)]


def test_the_latest_file_first_and_files_deleted_once_read(kit, p):
    got = []
    for name, more in {
        "newest": {"latestFirst": True},
        "cleaned": {"cleanSource": "delete"},
    }.items():
        options = {"maxFilesPerTrigger": 1, **more}
        p.stream(name, format="text", path=str(kit.folder / name), options=options)
        for n in range(3):
            kit.feed(name, str(n))
    keep = et.call(lambda batch, number: got.extend(row["value"] for row in batch.collect()))
    p.table("first", sql="SELECT value FROM newest", trigger=NOW, sink=keep)
    p.table("t", sql="SELECT value FROM cleaned", trigger=NOW)
    finish(kit, p)
    assert got == ["2", "1", "0"]
    assert rows(p) == [("0",), ("1",), ("2",)]
    assert len(list((kit.folder / "newest").glob("*.txt"))) == 3
    wait_for(lambda: len(list((kit.folder / "cleaned").glob("*.txt"))) <= 1)  # in the background


def test_a_catalog_table_as_source_and_as_sink(kit, p):
    for name in ("python_cities", "python_copied"):
        kit.spark.sql(f"DROP TABLE IF EXISTS {name}")
    where = kit.folder / "catalog"
    kit.spark.sql(f"CREATE TABLE python_cities (id INT) USING parquet LOCATION '{where}'")
    kit.spark.sql("INSERT INTO python_cities VALUES (1), (2)")
    p.stream("s", format="table", options={"table": "python_cities"})
    sink = et.table("python_copied", path=str(kit.folder / "copied"))
    p.table("t", sql="SELECT id FROM s", trigger=NOW, sink=sink)
    finish(kit, p)
    assert sorted(r.id for r in kit.spark.table("python_copied").collect()) == [1, 2]


# -- sinks and keys ----------------------------------------------------------------------------


def test_two_sinks_get_the_same_rows_computed_once(kit, p):
    texts(kit, p, "a", "b", one_a_batch=True)
    both = ["embedded", et.files("json", str(kit.folder / "out"))]

    @p.table(trigger=NOW, sink=both)
    def t(s):
        return s.select("value", F.expr("uuid()").alias("once"))

    finish(kit, p)
    assert [r[0] for r in rows(p)] == ["a", "b"]
    found = kit.spark.read.json(str(kit.folder / "out")).select("value", "once").collect()
    assert sorted(map(tuple, found)) == rows(p)


def test_a_static_table_is_read_anew(kit, p):
    kit.write("brands/1.csv", "a,acme\n")
    texts(kit, p, "a")
    p.static(
        "brands",
        format="csv",
        path=str(kit.folder / "brands"),
        schema="value STRING, brand STRING",
        refresh="200 milliseconds",
    )
    again = threading.Event()
    p.listen(refresh=lambda event: again.set())

    @p.table(trigger=et.every("20 milliseconds"))
    def t(s, brands):
        return s.join(brands, "value", "left")

    def there():
        if len(rows(p)) == 1 and not (kit.folder / "brands/2.csv").exists():
            kit.write("brands/2.csv", "b,bolt\n")
            again.clear()
        if again.is_set() and len(list((kit.folder / "in").glob("*.txt"))) == 1:
            kit.feed("in", "b")
        return len(rows(p)) == 2

    until(kit, p, there)
    assert rows(p) == [("a", "acme"), ("b", "bolt")]


def test_the_watermark_of_two_streams_is_the_smallest_or_the_greatest(kit, p):
    for name, hours in {"fast": (12, 13), "slow": (12,)}.items():
        kit.feed(name, *(json.dumps({"at": f"2026-01-01T{h}:01:00Z"}) for h in hours))
        path = str(kit.folder / name)
        p.stream(
            name, format="json", path=path, schema="at TIMESTAMP", watermark=("at", "0 seconds")
        )

    def counted(fast, slow):
        window = F.window("at", "10 minutes").alias("w")
        return fast.union(slow).groupBy(window).agg(F.count("*").alias("n")).select("n")

    for policy in ("min", "max"):
        counted.__name__ = policy
        p.table(trigger=NOW, watermark_policy=policy)(counted)
    finish(kit, p)
    assert (rows(p, "min"), rows(p, "max")) == ([], [(2,)])


def test_one_stream_used_twice_has_stable_names_in_joins_and_unions(kit, p):
    texts(kit, p, "a1", "b1")

    @p.view
    def only_a(s):
        return s.where("value LIKE 'a%'")

    @p.table(trigger=NOW)
    def joined(s, only_a):
        same = F.substring(s.value, 2, 1) == F.substring(only_a.value, 2, 1)
        return s.join(only_a, same).select(s.value.alias("one"), only_a.value.alias("other"))

    @p.table(trigger=NOW)
    def both(s, only_a):
        return s.union(only_a)

    finish(kit, p)
    assert rows(p, "joined") == [("a1", "a1"), ("b1", "a1")]
    assert rows(p, "both") == [("a1",), ("a1",), ("b1",)]
    for table in ("joined", "both"):
        log = kit.folder / ".evertable/p/checkpoints" / table / "offsets/0"
        names = sorted(line.partition(":")[0] for line in log.read_text().splitlines()[2:])
        assert names == ["s", "s_2"]
