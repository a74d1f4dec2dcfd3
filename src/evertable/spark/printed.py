"""What the JVM prints: rows of Spark's own console sink, which tables without batches have.

They go through this process, to whoever shows its output: raw, they would be in the middle of it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evertable.spark.secrets import redact


def _print(line: str) -> None:
    print(line, flush=True)


_take: Callable[[str], None] = _print


def to(take: Callable[[str], None]) -> None:
    """Give each line to this function from now on, on a thread of its own."""
    global _take
    _take = take


@contextmanager
def inherited() -> Iterator[None]:
    """A program started in here prints to us for as long as it lives."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    saved = os.dup(1)
    ours = threading.Event()  # until stdout is what it was, a line would come back to us
    threading.Thread(target=_pass_on, args=(reading, ours), daemon=True).start()
    try:
        os.dup2(writing, 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(writing)
        ours.set()


def _pass_on(reading: int, ours: threading.Event) -> None:
    ours.wait()
    with os.fdopen(reading, "r", errors="replace") as lines:
        for line in lines:
            # Where nobody looks any more the pipe has to be read all the same.
            with contextlib.suppress(OSError, ValueError):
                _take(redact(line.rstrip("\n")))
