"""Kafka to Kafka at 1,000 records a second: how long a record takes, for each trigger.

    python bench/latency.py [ROUNDS]

A record carries the moment it was produced; its latency is the time until a consumer of the output
topic has it. Each round runs every trigger once, each in a process and with topics of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, Producer

from evertable.testing.broker import Broker

PER_SECOND = 1_000
WARM_UP, MEASURED = 8, 10  # seconds
PIPELINE = """
name: p
spark: {{master: "local[2]"}}
streams:
  s:
    format: kafka
    options: {{kafka.bootstrap.servers: "{address}", subscribe: {a}, startingOffsets: latest}}
tables:
  t:
    query: SELECT key, value FROM s
    output_mode: {mode}
    trigger: {trigger}
    sink: {{format: kafka, kafka.bootstrap.servers: "{address}", topic: {b}{more}}}
"""
TRIGGERS = {
    "default": ("append", "default", ""),
    "async": ("append", "default", ", asyncProgressTrackingEnabled: true"),
    "continuous": ("append", "{continuous: 1 second}", ""),
    "real time": ("update", "{real_time: 5 minutes}", ""),
}


def measure(broker: Broker, name: str) -> list[float]:
    """Latencies in milliseconds, sorted."""
    mode, trigger, more = TRIGGERS[name]
    a, b = (f"{kind}{uuid.uuid4().hex[:8]}" for kind in "ab")
    for topic in (a, b):
        broker.create_topic(topic, 1)
    folder = Path(tempfile.mkdtemp(prefix="latency-"))
    (folder / "p.yaml").write_text(
        PIPELINE.format(address=broker.address, a=a, b=b, mode=mode, trigger=trigger, more=more)
    )
    with open(folder / "output.txt", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "evertable", "run"],
            cwd=folder, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        found = flow(broker.address, a, b)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if not found:
        sys.exit(f"{name} delivered nothing: see {folder}/output.txt")
    shutil.rmtree(folder)
    return sorted(found)


def flow(address: str, a: str, b: str) -> list[float]:
    """Produce at a steady rate until enough was seen at the other end."""
    over = threading.Event()
    producing = threading.Thread(target=produce, args=(address, a, over))
    producing.start()
    consumer = Consumer(
        {
            "bootstrap.servers": address, "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest", "fetch.wait.max.ms": 1, "log_level": 0,
        }
    )  # fmt: skip
    consumer.subscribe([b])
    found: list[float] = []
    first = None
    until = time.monotonic() + 90
    while time.monotonic() < until:
        for message in consumer.consume(500, 0.001):
            now = time.time_ns()
            if message.error():
                continue
            if first is None:
                first = time.monotonic()
                until = first + WARM_UP + MEASURED
            if time.monotonic() - first > WARM_UP:
                found.append((now - int(message.value())) / 1e6)
    over.set()
    producing.join()
    consumer.close()
    return found


def produce(address: str, topic: str, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
    begun, sent = time.monotonic(), 0
    while not over.is_set():
        due = int((time.monotonic() - begun) * PER_SECOND)
        while sent < due:
            producer.produce(topic, str(time.time_ns()))
            sent += 1
        producer.poll(0)
        time.sleep(0.001)
    producer.flush(5)


def at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


def main(rounds: int = 7) -> None:
    p99: dict[str, list[float]] = {name: [] for name in TRIGGERS}
    all_of: dict[str, list[list[float]]] = {name: [] for name in TRIGGERS}
    with Broker() as broker:
        for _ in range(rounds):
            for name in TRIGGERS:
                found = measure(broker, name)
                all_of[name].append([at(found, 0.5), at(found, 0.95), at(found, 0.99)])
                p99[name].append(at(found, 0.99))
    for name, values in all_of.items():
        middle = [statistics.median(column) for column in zip(*values, strict=True)]
        ratios = sorted(x / y for x, y in zip(p99[name], p99["default"], strict=True))
        verdict = ""
        if name == "real time":
            met = statistics.median(ratios) <= 0.2
            verdict = f"; p99 at most 0.2 of the default's: {'met' if met else 'MISSED'}"
        print(
            f"{name:<11} p50 {middle[0]:7.1f} ms  p95 {middle[1]:7.1f}  p99 {middle[2]:7.1f}; p99 "
            f"to the default's {statistics.median(ratios):.3f} ({ratios[0]:.3f} to "
            f"{ratios[-1]:.3f}), {rounds} rounds{verdict}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
