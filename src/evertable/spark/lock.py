"""One writer a checkpoint: a file lock held by the JVM that writes, for as long as it lives.

Python can be killed and leave its JVM writing for a moment, so a lock of Python's own would be
free too early. Java's FileLock goes when the JVM goes, and not before.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evertable.errors import NotReady
from evertable.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Locks of this process. POSIX drops all of a process's locks on a file when any descriptor of it
# is closed, so a file that is locked here must not be opened a second time.
_held: set[str] = set()

_DYING = 20.0  # seconds that a JVM whose Python is gone may take to notice


class CheckpointLock:
    """Held from `take` to `release`."""

    def __init__(self, session: SparkSession, file: str, what: str, place: Location | None) -> None:
        self._jvm: Any = session._jvm
        self._file = file
        self._what = what
        self._place = place
        self._channel: Any = None

    def take(self) -> None:
        """Take the lock, or NotReady naming who holds it."""
        os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
        until = time.monotonic() + _DYING
        while not self._try():
            holder = _read(self._file)
            if _lives(holder) or time.monotonic() > until:
                raise NotReady.of(
                    "CHECKPOINT_IN_USE",
                    f"{self._what} is run by another process",
                    place=self._place,
                    detail=f"pid {holder.get('pid', '?')} on {holder.get('host', '?')}, "
                    f"since {holder.get('since', '?')}",
                    hint="stop that one first, or run other tables with --only",
                )
            time.sleep(0.05)
        holder_now = {
            "pid": os.getpid(),
            "host": os.uname().nodename,
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        Path(self._file + ".holder").write_text(json.dumps(holder_now))

    def release(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            _held.discard(os.path.realpath(self._file))

    def _try(self) -> bool:
        real = os.path.realpath(self._file)
        if real in _held:
            return False
        channel = self._jvm.java.io.RandomAccessFile(self._file, "rw").getChannel()
        if channel.tryLock() is None:
            channel.close()
            return False
        _held.add(real)
        self._channel = channel
        return True


def _read(file: str) -> dict[str, Any]:
    try:
        holder: dict[str, Any] = json.loads(Path(file + ".holder").read_text())
    except (OSError, ValueError):
        return {}
    return holder


def _lives(holder: dict[str, Any]) -> bool:
    """Whether the Python that took the lock is still there; unknown counts as yes."""
    pid = holder.get("pid")
    if not isinstance(pid, int) or holder.get("host") != os.uname().nodename:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
