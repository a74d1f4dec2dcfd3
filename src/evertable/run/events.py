"""What happens to tables while they run, as values; terminals and stores read these."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from evertable.errors import Finding


@dataclass(frozen=True, slots=True)
class Started:
    table: str
    at: str


@dataclass(frozen=True, slots=True)
class Batch:
    """One finished batch, from Spark's own progress."""

    table: str
    at: str
    batch: int
    rows_in: int
    rows_out: int | None
    seconds: float
    arriving: float  # rows a second
    done: float  # rows a second
    watermark: str | None
    state_rows: int
    state_bytes: int
    late: int
    bad: int  # records that did not decode
    ms: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Idle:
    table: str
    at: str


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The static tables of a table were read anew."""

    table: str
    at: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """A table could not go on; it starts again with the same batch, after a pause."""

    table: str
    at: str
    finding: Finding
    attempt: int  # the one that comes next; the first one was the start
    most: int | None  # after which it gives up
    seconds: float  # until then
    batch: int  # what is kept meanwhile


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something to know, that stops nothing."""

    table: str
    at: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Ended:
    """A table stopped, was finished, or failed."""

    table: str
    at: str
    how: str  # finished, stopped, failed
    finding: Finding | None = None


Event = Started | Batch | Idle | Refreshed | Retrying | Noticed | Ended


def batch_of(
    table: str, at: str, progress: dict[str, Any], rows_out: int | None, bad: int = 0
) -> Batch:
    """A batch from the JSON of Spark's StreamingQueryProgress."""
    operators = progress.get("stateOperators", [])
    watermark = progress.get("eventTime", {}).get("watermark")
    out = progress.get("sink", {}).get("numOutputRows", -1)
    return Batch(
        table=table,
        at=at,
        batch=progress["batchId"],
        rows_in=progress.get("numInputRows", 0),
        rows_out=rows_out if rows_out is not None else (out if out >= 0 else None),
        seconds=progress.get("batchDuration", 0) / 1000,
        arriving=_number(progress.get("inputRowsPerSecond")),
        done=_number(progress.get("processedRowsPerSecond")),
        watermark=watermark if watermark and not watermark.startswith("1970-") else None,
        state_rows=sum(o.get("numRowsTotal", 0) for o in operators),
        state_bytes=sum(o.get("memoryUsedBytes", 0) for o in operators),
        late=sum(o.get("numRowsDroppedByWatermark", 0) for o in operators),
        bad=bad,
        ms=dict(progress.get("durationMs", {})),
    )


def _number(value: object) -> float:
    """Spark writes NaN and Infinity as text where a batch had no length."""
    return float(value) if isinstance(value, int | float) and value == value else 0.0


def now() -> str:
    """The moment of an event."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
