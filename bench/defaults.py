"""Our defaults and Spark's own, on the same queries: what a batch takes once both are warm.

    python bench/defaults.py [PAIRS [WORKLOAD]]

- 10 rows: a stateful batch of 10 rows;
- YSB: 1M advert events a batch, filtered, joined with a static table, counted by 10-second windows;
- windowed count: 400k bids a batch, count, max and sum by bidder and 10-second window.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet

from pairs import Measured, report, run

OURS = """
name: p
spark: {master: "local[2]"}
streams:
  s:
    format: FORMAT
    path: IN
    schema: "SCHEMA"
    options: {maxFilesPerTrigger: 1}
    watermark: {column: at, delay: 4 seconds}
STATICS
tables:
  t: {query: "QUERY", output_mode: update, sink: noop}
"""
THEIRS = """
import json
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").getOrCreate()
(spark.readStream.format("FORMAT").schema("SCHEMA").option("maxFilesPerTrigger", 1).load("IN")
 .withWatermark("at", "4 seconds").createOrReplaceTempView("s"))
STATICS
query = (spark.sql("QUERY").writeStream.outputMode("update").format("noop")
         .option("checkpointLocation", "checkpoint").start())
seen = 0
with open("batches.txt", "w") as file:
    while True:
        for progress in query.recentProgress[seen:]:
            seen += 1
            if progress.numInputRows:
                file.write(json.dumps(progress.durationMs["triggerExecution"]) + "\\n")
                file.flush()
        time.sleep(0.2)
"""


@dataclass(frozen=True)
class Case:
    """One query: its input, what it is in SQL, and how much of Spark's time ours may take."""

    name: str
    format: str
    schema: str
    query: str
    make: Callable[[Path], None]
    batches: int  # the first half is warm-up
    most: float
    statics: tuple[str, str] = ("", "")


def ten_rows(folder: Path) -> None:
    for n in range(8):
        rows = "".join(f'{{"k":"k{i}","at":"2026-01-01T00:00:{n:02}Z"}}\n' for i in range(10))
        (folder / f"{n:03}.json").write_text(rows)


def events(folder: Path) -> None:
    chance = numpy.random.default_rng(42)
    rows = 1_000_000
    kinds = numpy.array(["view", "click", "purchase"])
    for n in range(4):
        write(
            folder / f"{n}.parquet",
            ad=chance.integers(0, 1000, rows),
            kind=kinds[chance.integers(0, 3, rows)],
            at=moments(n, rows),
        )
    write(folder.parent / "ads.parquet", ad=numpy.arange(1000), campaign=numpy.arange(1000) // 10)


def bids(folder: Path) -> None:
    chance = numpy.random.default_rng(42)
    rows = 400_000
    for n in range(4):
        write(
            folder / f"{n}.parquet",
            bidder=chance.integers(0, 20_000, rows),
            price=chance.integers(1, 1000, rows),
            at=moments(n, rows),
        )


def moments(batch: int, rows: int) -> numpy.ndarray:
    """Twenty seconds of event time a batch."""
    return (
        1_767_225_600_000_000 + (batch * rows + numpy.arange(rows)) * 20_000_000 // rows
    ).astype("datetime64[us]")


def write(file: Path, **columns: numpy.ndarray) -> None:
    table = pyarrow.table(columns)
    if "at" in columns:
        utc = table["at"].cast(pyarrow.timestamp("us", tz="UTC"))
        table = table.set_column(table.column_names.index("at"), "at", utc)
    pyarrow.parquet.write_table(table, file)


CASES = (
    Case(
        "10-row stateful batch", "json", "k STRING, at TIMESTAMP",
        "SELECT k, count(*) AS n FROM s GROUP BY k", ten_rows, 8, 0.2,
    ),
    Case(
        "YSB, 1M events a batch", "parquet", "ad BIGINT, kind STRING, at TIMESTAMP",
        "SELECT window(at, '10 seconds') AS w, campaign, count(*) AS n FROM s JOIN ads USING (ad) "
        "WHERE kind = 'view' GROUP BY 1, 2", events, 4, 1 / 8,
        ("statics:\n  ads: {format: parquet, path: ads.parquet}",
         'spark.read.parquet("ads.parquet").createOrReplaceTempView("ads")'),
    ),
    Case(
        "windowed count, 400k bids", "parquet", "bidder BIGINT, price BIGINT, at TIMESTAMP",
        "SELECT window(at, '10 seconds') AS w, bidder, count(*) AS n, max(price) AS m, "
        "sum(price) AS s FROM s GROUP BY 1, 2", bids, 4, 1 / 3,
    ),
)  # fmt: skip


def lay_out(case: Case) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="defaults-"))
    (folder / "in").mkdir()
    case.make(folder / "in")
    ours, theirs = case.statics

    def filled(text: str, statics: str) -> str:
        values = {
            "FORMAT": case.format, "SCHEMA": case.schema, "QUERY": case.query,
            "STATICS": statics, "IN": "in",
        }  # fmt: skip
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    (folder / "p.yaml").write_text(filled(OURS, ours))
    (folder / "plain.py").write_text(filled(THEIRS, theirs))
    (folder / "output.txt").write_text("")
    return folder


def ours_done(case: Case, folder: Path) -> Callable[[], float | None]:
    def done() -> float | None:
        lines = (folder / "output.txt").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return warm(case, [e["ms"]["triggerExecution"] for e in found if e.get("rows_in")])

    return done


def theirs_done(case: Case, folder: Path) -> Callable[[], float | None]:
    def done() -> float | None:
        try:
            return warm(case, [int(x) for x in (folder / "batches.txt").read_text().split()])
        except FileNotFoundError:
            return None

    return done


def warm(case: Case, times: list[int]) -> float | None:
    """The median batch of the second half, in seconds."""
    if len(times) < case.batches:
        return None
    return statistics.median(times[case.batches // 2 : case.batches]) / 1000


def main(pairs: int = 7, only: str = "") -> None:
    for case in [c for c in CASES if c.name.startswith(only)]:
        ours: list[Measured] = []
        theirs: list[Measured] = []
        for _ in range(pairs):
            folder = lay_out(case)
            command = [sys.executable, "-m", "evertable", "run", "--json"]
            ours.append(run(command, folder, ours_done(case, folder)))
            theirs.append(run([sys.executable, "plain.py"], folder, theirs_done(case, folder)))
            shutil.rmtree(folder)
        print(report(case.name, ours, theirs, "value", most=case.most))
        print(report("all of it, with the start", ours, theirs, "wall"))
        print(report("all of it, with the start", ours, theirs, "cpu"), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:3])
