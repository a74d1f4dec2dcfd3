"""A run that kills itself, its JVM and all its workers at one named moment.

python victim.py FILE TABLE POINT BATCH      (or FILE alone: it runs to its end)
"""

from __future__ import annotations

import os
import signal
import sys
import time

from evertable.project import open_pipeline
from evertable.run.events import Batch
from evertable.run.faults import Fault
from evertable.run.runner import Runner
from evertable.sinks.postgres import staging

staging.INLINE = 0  # what is staged at all is staged by tasks, though batches are small here


def main() -> int:
    file, *fault = sys.argv[1:]
    noted: set[tuple[str, int]] = set()

    def strike(point: Fault, table: str, batch: int) -> None:
        if fault and [table, point.name, str(batch)] == fault:
            # Spark tells of a batch that is done in a thread of its own, and maybe only now.
            until = time.monotonic() + 30
            while (table, batch - 1) not in noted and time.monotonic() < until:
                time.sleep(0.01)
            os.killpg(0, signal.SIGKILL)

    def note(event: object) -> None:
        if isinstance(event, Batch):
            with open("late.txt", "a") as late:
                late.write(f"{event.table} {event.batch} {event.late}\n")
            noted.add((event.table, event.batch))

    runner = Runner(open_pipeline(file), at=strike, emit=note, quick=True)
    runner.start()
    runner.wait()
    for run in runner.failed():
        print(run.finding, file=sys.stderr)
    return len(runner.failed())


if __name__ == "__main__":
    sys.exit(main())
