"""Rows made by Spark itself, or typed into a socket: for first steps and for tests."""

from __future__ import annotations

from evertable.model import option_values as takes
from evertable.model.capabilities import MISPLACED, SourceCapabilities

RATE = SourceCapabilities(
    formats=("rate",),
    options=frozenset({"rowsPerSecond", "rampUpTime", "numPartitions"}),
    values={"rowspersecond": takes.whole_number, "numpartitions": takes.whole_number},
    misplaced=MISPLACED,
    continuous=True,
)
RATE_MICRO_BATCH = SourceCapabilities(
    formats=("rate-micro-batch",),
    options=frozenset({"rowsPerBatch", "numPartitions", "startTimestamp", "advanceMillisPerBatch"}),
    required=("rowsPerBatch",),
    values={
        "rowsperbatch": takes.whole_number,
        "numpartitions": takes.whole_number,
        "starttimestamp": takes.whole_number,
        "advancemillisperbatch": takes.whole_number,
    },
    misplaced=MISPLACED,
)
SOCKET = SourceCapabilities(
    formats=("socket",),
    options=frozenset({"host", "port", "includeTimestamp"}),
    required=("host", "port"),
    values={"port": takes.whole_number, "includetimestamp": takes.boolean},
    misplaced=MISPLACED,
    replays=False,
    continuous=True,
)

SOURCES = (RATE, RATE_MICRO_BATCH, SOCKET)
