"""What Evertable costs on top of Spark: the same pipeline in hand-tuned PySpark beside it.

    python bench/overhead.py [PAIRS]

Both run the same query over the same files to their end, with the same confs, the same class
archive and the same Java flags; what is compared is the CPU time of the whole process tree, start
included.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from evertable.spark import classes
from evertable.spark.java import find_java
from evertable.spark.session import FILE_MANAGER, ROCKSDB
from pairs import report, run_to_end

FILES, ROWS = 40, 20_000
QUERY = (
    "SELECT window(at, '10 seconds').start AS w, k, count(*) AS n, sum(v) AS v FROM s "
    "GROUP BY window(at, '10 seconds'), k"
)
SCHEMA = "k INT, v INT, at TIMESTAMP"
OURS = f"""
name: p
spark: {{master: "local[2]"}}
streams:
  s:
    format: json
    path: @INPUT
    schema: "{SCHEMA}"
    options: {{maxFilesPerTrigger: 1}}
    watermark: {{column: at, delay: 10 seconds}}
tables:
  t:
    query: |
      {QUERY}
    trigger: available_now
    sink: SINK
"""
THEIRS = f"""
import os
import sys

from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
builder = SparkSession.builder.master("local[2]")
for key, value in CONFS.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
(spark.readStream.name("s").schema("{SCHEMA}").option("maxFilesPerTrigger", 1).json("@INPUT")
 .withWatermark("at", "10 seconds").createOrReplaceTempView("s"))
query = (spark.sql('''{QUERY}''').writeStream.SINK
         .option("checkpointLocation", "checkpoint").trigger(availableNow=True).start())
query.awaitTermination()
"""
CONFS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
}
SINKS = {
    "noop": ("noop", 'format("noop")'),
    "parquet files": ("{format: parquet, path: out}", 'format("parquet").option("path", "theirs")'),
}


def make_input() -> Path:
    chance = random.Random(7)
    folder = Path(tempfile.mkdtemp(prefix="overhead-input-"))
    for n in range(FILES):
        lines = []
        for i in range(ROWS):
            second = n * 10 + i * 10 // ROWS
            at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
            lines.append(f'{{"k":{chance.randrange(100)},"v":{i % 1000},"at":"{at}"}}')
        (folder / f"{n:03}.json").write_text("\n".join(lines) + "\n")
    return folder


def lay_out(source: Path, sink: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="overhead-"))
    ours, theirs = SINKS[sink]
    (folder / "p.yaml").write_text(OURS.replace("@INPUT", str(source)).replace("SINK", ours))
    confs = {**CONFS, "spark.driver.extraJavaOptions": classes.flags(find_java())}
    text = THEIRS.replace("@INPUT", str(source)).replace("SINK", theirs)
    (folder / "plain.py").write_text(f"CONFS = {json.dumps(confs)}\n{text}")
    return folder


def main(pairs: int = 7) -> None:
    source = make_input()
    for sink in SINKS:
        ours, theirs = [], []
        for number in range(pairs):
            folder = lay_out(source, sink)
            ways = [
                (ours, [sys.executable, "-m", "evertable", "run"]),
                (theirs, [sys.executable, "plain.py"]),
            ]
            for into, command in ways[:: 1 if number % 2 else -1]:  # each goes first in turn
                into.append(run_to_end(command, folder))
            shutil.rmtree(folder)
        print(report(f"{FILES} batches into {sink}", ours, theirs, "cpu", most=1.03, bound=1.05))
        print(report(f"{FILES} batches into {sink}", ours, theirs, "wall"), flush=True)
    shutil.rmtree(source)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
