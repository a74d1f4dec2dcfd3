"""The JVM's log: through this process into a file, so that no secret reaches the disk.

Spark repeats options, and hosts, in its own log. The JVM writes all of it to its stderr, which is a
pipe to us; each line is redacted and goes to a file that is kept small.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evertable.spark.secrets import redact

_MOST_BYTES = 20_000_000


class JvmLog:
    """`<logs>/spark.log`, and the one before it as `spark.log.1`."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder, "spark.log")
        self._reader: threading.Thread | None = None

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """A program started in here writes its stderr to the log for as long as it lives."""
        os.makedirs(self.path.parent, mode=0o700, exist_ok=True)
        reading, writing = os.pipe()
        sys.stderr.flush()
        saved = os.dup(2)
        self._reader = threading.Thread(target=self._copy, args=(reading,), daemon=True)
        self._reader.start()
        try:
            os.dup2(writing, 2)
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            os.close(writing)

    def tail(self) -> list[str]:
        """What a program that has ended said last."""
        if self._reader is not None:
            self._reader.join(timeout=2)
        try:
            return self.path.read_text(errors="replace").strip().splitlines()[-200:]
        except OSError:
            return []

    def _copy(self, reading: int) -> None:
        with os.fdopen(reading, "r", errors="replace") as lines:
            for line in lines:
                self._write(redact(line))

    def _write(self, line: str) -> None:
        try:
            if self.path.exists() and self.path.stat().st_size > _MOST_BYTES:
                self.path.replace(self.path.with_suffix(".log.1"))
            with open(self.path, "a", opener=_private) as file:
                file.write(line)
        except OSError:
            pass  # a full disk must not hold Spark up; the pipe has to be read on


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
