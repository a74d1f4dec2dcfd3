"""Where a table that runs can stand."""

from __future__ import annotations

from enum import Enum

from evertable.errors import Finding
from evertable.location import Location


class State(Enum):
    NEW = "new"
    READY = "ready"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


def jvm_died(what: str, place: Location | None) -> Finding:
    """Nothing of Spark can be asked any more."""
    return Finding(
        "JVM_DIED",
        f"Spark's JVM ended while {what} was running",
        place,
        detail="it was killed, or the machine had no memory left for it",
        hint="run again: the batch that was running is replayed",
    )
