"""What each default is worth: a stateful batch of ten rows with it, and with Spark's own instead.

    python bench/tuning.py [ROUNDS]

The last line is the other way round: a setting that is not the default, because its file system is
not Hadoop's.
"""

from __future__ import annotations

import shutil
import sys

from defaults import CASES, lay_out, ours_done
from evertable.spark.session import BARE_FILES
from pairs import Measured, report, run

TEN_ROWS = CASES[0]
STREAMING = "spark.sql.streaming"
SPARKS = {
    "spark.sql.shuffle.partitions": "200",
    f"{STREAMING}.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileContextBasedCheckpointFileManager",
    f"{STREAMING}.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "HDFSBackedStateStoreProvider",
    f"{STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    "spark.scheduler.mode": "FIFO",
    "spark.ui.enabled": "true",
    "spark.hadoop.fs.file.impl": BARE_FILES,
}


def once(confs: dict[str, str]) -> Measured:
    folder = lay_out(TEN_ROWS)
    text = (folder / "p.yaml").read_text()
    more = "".join(f', {name}: "{value}"' for name, value in confs.items())
    (folder / "p.yaml").write_text(text.replace('"local[2]"', f'"local[2]"{more}'))
    found = run(
        [sys.executable, "-m", "evertable", "run", "--json"], folder, ours_done(TEN_ROWS, folder)
    )
    shutil.rmtree(folder)
    return found


def main(rounds: int = 5) -> None:
    for name, value in SPARKS.items():
        ours, theirs = [], []
        for number in range(rounds):
            for into, confs in [(ours, {}), (theirs, {name: value})][:: 1 if number % 2 else -1]:
                into.append(once(confs))
        short = name.rpartition(".")[2] if len(name) > 30 else name
        print(report(short, ours, theirs, "value"), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
