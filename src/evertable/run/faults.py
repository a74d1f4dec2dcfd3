"""The moments at which a crash leaves a different state on disk, named.

| point | on disk when it strikes |
|---|---|
| BEFORE_DATA | the batch's offsets; nothing of it in the sink |
| AFTER_DATA | besides, what the sink writes before its commit (below) |
| AFTER_SINK_COMMIT | data and ledger are in the sink; Spark has no commit of the batch |

What a sink writes before its commit: files that the log of their folder does not name; records of
an open transaction in Kafka; in Postgres the table in which tasks have staged rows, also while they
are moved, since moving is a part of the transaction. Of a transaction of SQLite or Postgres nothing
stays. A function with a ledger here has done all of its work.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Fault(Enum):
    BEFORE_DATA = "before data"
    AFTER_DATA = "after data"
    AFTER_SINK_COMMIT = "after the sink's commit"


# Called at each point with the table and the batch; tests strike here, nobody else listens.
FaultHook = Callable[[Fault, str, int], None]


def nothing_strikes(point: Fault, table: str, batch: int) -> None:
    """What every run outside the tests uses."""
