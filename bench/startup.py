"""From the start of the process to the first committed batch: `evertable run` and plain PySpark.

python bench/startup.py [PAIRS]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from pairs import report, run

OURS = """
name: p
spark: {master: "local[2]"}
streams:
  s: {format: json, path: in, schema: "k STRING, n INT"}
tables:
  t: {query: "SELECT k, count(*) AS n FROM s GROUP BY k", output_mode: update}
"""
THEIRS = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").getOrCreate()
rows = spark.readStream.schema("k STRING, n INT").json("in")
counts = rows.groupBy("k").count()
query = (counts.writeStream.outputMode("update").format("noop")
         .option("checkpointLocation", "checkpoint").start())
query.awaitTermination()
"""


def lay_out() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="startup-"))
    (folder / "in").mkdir()
    (folder / "in/1.json").write_text('{"k":"a","n":1}\n' * 10)
    (folder / "p.yaml").write_text(OURS)
    (folder / "plain.py").write_text(THEIRS)
    return folder


def first_commit(folder: Path, checkpoint: str):
    commit = folder / checkpoint / "commits/0"
    return lambda: 1.0 if commit.exists() else None


def main(pairs: int = 7) -> None:
    ours, theirs = [], []
    for _ in range(pairs):
        folder = lay_out()
        command = [sys.executable, "-m", "evertable", "run"]
        ours.append(run(command, folder, first_commit(folder, ".evertable/p/checkpoints/t")))
        theirs.append(run([sys.executable, "plain.py"], folder, first_commit(folder, "checkpoint")))
        shutil.rmtree(folder)
    print(report("first committed batch", ours, theirs, "wall", most=0.4))
    print(report("first committed batch", ours, theirs, "cpu"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
