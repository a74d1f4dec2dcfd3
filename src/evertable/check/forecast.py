"""How many rows of state an operator will hold, and when a growing one fills a given memory.

Pure arithmetic on facts of the plan, the rate of rows, and a sample of their keys. Rows are taken
to come evenly in time, each with a key by its share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evertable.check.keys_model import Keys, Zipf
from evertable.model.facts import Kept

_SLACK = 0.12  # of what the band is widened: rates and disorder of a sample are not those of all
_DAY = 86_400.0


@dataclass(frozen=True)
class Flow:
    """The rows that come to an operator."""

    rate: float  # a second
    keys: Keys
    total: float = 0.0  # rows that wait in the source now
    repeats: float = 1.0  # rows a key and moment


@dataclass(frozen=True)
class Forecast:
    """State at steady state; of a growing operator, after a day of new rows."""

    rows: float
    low: float
    high: float
    row_bytes: int
    grows: bool = False
    full_in: float | None = None  # seconds until a memory is full, for a growing one

    @property
    def bytes(self) -> int:
        return round(self.rows * self.row_bytes)


def forecast(
    kept: Kept, flow: Flow, batch: float, memory: float | None = None, rows: float | None = None
) -> Forecast | None:
    """What an operator will hold; None where nobody can tell.

    `batch`: how many seconds of rows come in one batch; a batch is judged by the watermark of the
    one before it. `rows`: of a growing operator, after how many input rows; a day's without.
    """
    if kept.bound == "constant":
        return Forecast(1, 1, 1, kept.row_bytes)
    if kept.bound == "growing" or (kept.bound == "yours" and kept.kind == "python"):
        return _growing(kept, flow, memory, flow.rate * _DAY if rows is None else rows)
    count = _steady(kept, flow, batch)
    if count is None:
        return None
    return Forecast(*_band(flow.keys.about(count)), kept.row_bytes)


def _growing(kept: Kept, flow: Flow, memory: float | None, rows: float) -> Forecast:
    if kept.kind == "join":
        low, high = rows * (1 - _SLACK), rows * (1 + _SLACK)
        full = memory / kept.row_bytes / flow.rate if memory and flow.rate else None
        return Forecast(rows, low, high, kept.row_bytes, True, full)
    count, low, high = _band(flow.keys.about(lambda law: law.distinct(rows)))
    full = _until(memory / kept.row_bytes, flow) if memory else None
    return Forecast(count, low, high, kept.row_bytes, True, full)


def _until(keys: float, flow: Flow) -> float | None:
    """Seconds until there are so many keys; None where there never will be."""
    low, high = 0.0, _DAY * 36_500

    def after(seconds: float) -> float:
        return flow.keys.about(lambda law: law.distinct(flow.rate * seconds))[0]

    if not flow.rate or after(high) < keys:
        return None
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if after(middle) >= keys else (middle, high)
    return high


def _steady(kept: Kept, flow: Flow, batch: float) -> Callable[[Zipf], float] | None:
    """The mean number of rows of state once as much is forgotten as is added."""
    lasts = kept.millis / 1000 + batch
    window, slide = kept.window / 1000, (kept.slide or kept.window) / 1000
    rate = flow.rate
    match kept.kind:
        case "join":
            return lambda law: rate * (lasts + window / 2)
        case "window":
            return lambda law: _windows(law, rate, window, slide, lasts)
        case "session" if window:
            return lambda law: law.of_each(rate, lambda one: _sessions(one, lasts, window))
        case "dedup within watermark":
            known = kept.millis / 1000
            return lambda law: law.of_each(rate, lambda one: _known(one, known, batch))
        case "aggregate" | "dedup":  # by the time of the row itself
            return lambda law: rate * lasts / flow.repeats
    return None


def _windows(law: Zipf, rate: float, window: float, slide: float, lasts: float) -> float:
    """Keys of whole windows that are not yet forgotten, and of those that still fill."""
    filling = np.linspace(0, window, 33)[1:] - window / 66
    partly = np.mean([law.distinct(rate * seconds) for seconds in filling])
    return float(lasts / slide * law.distinct(rate * window) + window / slide * partly)


def _known(rate: np.ndarray, lasts: float, batch: float) -> np.ndarray:
    """The chance that a key is known after a batch: it comes back only once it was forgotten.

    It is forgotten at the end of a batch, and rows of that batch do not bring it back.
    """
    found: np.ndarray
    if not batch:
        found = rate * lasts / (1 + rate * lasts)
        return found
    comes = -np.expm1(-rate * batch)
    batches = np.ceil(lasts / batch)
    early = -np.expm1(-rate * (batches * batch - lasts)) / comes
    known = batches + 1 - early
    found = known / (known + 1 / comes)
    return found


def _sessions(rate: np.ndarray, lasts: float, gap: float) -> np.ndarray:
    """Sessions of a key that ended not long ago, and the one that may still go on."""
    alone = np.exp(-rate * gap)  # the chance that a row is the last one of its session
    found: np.ndarray = rate * lasts * alone + 1 - alone
    return found


def _band(counted: tuple[float, float, float]) -> tuple[float, float, float]:
    about, least, most = counted
    return about, least * (1 - _SLACK), most * (1 + _SLACK)
