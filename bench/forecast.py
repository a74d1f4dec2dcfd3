"""How near `check --forecast` comes to the state that Spark then holds.

    python bench/forecast.py [RUNS [PART]]

Each run makes two streams anew: keys by Zipf's law with another exponent and number of keys, one
row in twenty out of order. The forecast reads at most one row in a hundred. Then each query is run,
and the mean of its state rows in the second half of its batches is the truth. With PART 8 there is
an eighth of the rows.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evertable.model.storage import Storage
from evertable.project import open_pipeline
from evertable.run.analysis import analyse_table, table_session
from evertable.run.forecasting import Asked, forecast_of
from evertable.spark import session as spark_session
from evertable.spark.schemas import SchemaStore

ROWS, FILES, RATE = 2_000_000, 20, 2_000
DELAY = 30  # seconds
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()
KINDS = {
    "windowed": "SELECT window(at, '2 minutes') AS w, k, count(*) AS n FROM a GROUP BY 1, 2",
    "sliding": (
        "SELECT window(at, '4 minutes', '1 minute') AS w, k, count(*) AS n FROM a GROUP BY 1, 2"
    ),
    "session": (
        "SELECT session_window(at, '20 seconds') AS w, k, count(*) AS n FROM a GROUP BY 1, 2"
    ),
    "dedup within watermark": "SELECT k FROM once",
    "range join": (
        "SELECT a.k FROM a JOIN b ON a.k = b.k AND bt BETWEEN at AND at + INTERVAL 1 MINUTE"
    ),
    "growing key set": "SELECT k, count(*) AS n FROM a GROUP BY k",
}
STREAM = """
  NAME:
    format: parquet
    path: FOLDER
    schema: "k BIGINT, COLUMN TIMESTAMP"
    options: {maxFilesPerTrigger: 1}
    watermark: {column: COLUMN, delay: 30 seconds}
"""
TABLE = """
  NAME:
    query: "QUERY"
    output_mode: MODE
    trigger: available_now
    sink: noop
"""


@dataclass(frozen=True)
class Outcome:
    """One query of one run."""

    kind: str
    told: float
    low: float
    high: float
    truth: float

    @property
    def error(self) -> float:
        return self.told / self.truth - 1

    @property
    def held(self) -> bool:
        return self.low <= self.truth <= self.high


def make(folder: Path, seed: int, rows: int, files: int) -> str:
    """Two streams; what their keys are like."""
    rng = np.random.default_rng(seed)
    exponent, number = rng.uniform(0.7, 1.3), int(10 ** rng.uniform(3, 5.3))
    shares = np.arange(1, number + 1, dtype=float) ** -exponent
    for name, column in (("a", "at"), ("b", "bt")):
        (folder / name).mkdir()
        keys = rng.permutation(number)[rng.choice(number, rows, p=shares / shares.sum())]
        times = BEGIN + np.sort(rng.uniform(0, ROWS / RATE, rows))
        late = rng.random(rows) < 0.05
        times = times - late * rng.uniform(0, DELAY * 0.9, rows)
        micros = pa.array((times * 1e6).astype("int64")).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"k": keys, column: micros})
        each = rows // files
        for n in range(files):
            file = folder / name / f"{n:03}.parquet"
            pq.write_table(table.slice(n * each, each), file)
            os.utime(file, (1_800_000_000 + n, 1_800_000_000 + n))
    return f"{number:,} keys, exponent {exponent:.2f}"


def pipeline(folder: Path):
    """Every kind of query as a table of one pipeline."""

    def stream(name: str, folder: str, time: str) -> str:
        return STREAM.replace("NAME", name).replace("FOLDER", folder).replace("COLUMN", time)

    streams = stream("a", "a", "at") + stream("b", "b", "bt") + stream("once", "a", "at")
    text = f"name: p\nstreams:{streams}    dedup: {{keys: k, within: watermark}}\ntables:"
    for number, (kind, sql) in enumerate(KINDS.items()):
        mode = "update" if kind.startswith("growing") else "append"
        table = TABLE.replace("NAME", f"t{number}").replace("QUERY", sql)
        text += table.replace("MODE", mode)
    (folder / "p.yaml").write_text(text)
    return open_pipeline(str(folder / "p.yaml"))


def outcomes(spark, folder: Path, rows: int) -> list[Outcome]:
    found = []
    model = pipeline(folder)
    schemas = SchemaStore(Storage.of(model).schemas, keep=False)
    for (kind, _), table in zip(KINDS.items(), model.tables, strict=True):
        session = table_session(spark, {}, table)
        analysed = analyse_table(session, model, table, schemas)
        asked = Asked(rows=rows // 100, after=rows)
        told = forecast_of(session, model, table, analysed, schemas, asked)
        operators = [one.forecast for one in told.operators]
        assert None not in operators, [one.why for one in told.operators]
        writer = analysed.frame.writeStream.format("noop").outputMode(table.output_mode)
        checkpoint = tempfile.mkdtemp(dir=folder)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        states = [sum(o["numRowsTotal"] for o in p["stateOperators"]) for p in query.recentProgress
                  if p["numInputRows"]]  # fmt: skip
        steady = states[len(states) // 2 :] if not operators[0].grows else states[-1:]
        found.append(
            Outcome(kind, sum(o.rows for o in operators), sum(o.low for o in operators),
                    sum(o.high for o in operators), sum(steady) / len(steady))
        )  # fmt: skip
    return found


def main(runs: int = 10, part: int = 1) -> None:
    spark = spark_session.start(
        {"master": "local[2]", "spark.sql.shuffle.partitions": "2"}, name="bench",
        root=tempfile.mkdtemp(), logs=tempfile.mkdtemp(),
    )  # fmt: skip
    all_of: list[Outcome] = []
    for seed in range(runs):
        folder = Path(tempfile.mkdtemp(prefix="evertable-forecast-"))
        random.seed(seed)
        print(f"run {seed + 1}: {make(folder, seed, ROWS // part, FILES)}", flush=True)
        for one in outcomes(spark, folder, ROWS // part):
            all_of.append(one)
            print(f"  {one.kind:<24} told {one.told:>10,.0f} ({one.low:,.0f} to {one.high:,.0f}), "
                  f"was {one.truth:>10,.0f}: {one.error:+.1%}{'' if one.held else ', OUTSIDE'}",
                  flush=True)  # fmt: skip
        shutil.rmtree(folder)
    for kind in KINDS:
        errors = sorted(abs(one.error) for one in all_of if one.kind == kind)
        held = sum(one.held for one in all_of if one.kind == kind)
        verdict = "met" if errors[-1] <= 0.25 and held >= 0.9 * runs else "MISSED"
        middle, worst = errors[len(errors) // 2], errors[-1]
        print(f"forecast, {kind:<24} error median {middle:.1%}, worst {worst:.1%}; the band held "
              f"{held} of {runs}; at most 25%, 9 of 10: {verdict}")  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
