"""A `transformWithState` processor alone: no JVM; time and watermark in the test's hand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from evertable.errors import Finding, Refused
from evertable.model.durations import millis
from evertable.testing.processor_state import Handle
from evertable.testing.rows import Rows
from evertable.testing.times import Day

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

TimeMode = Literal["none", "event", "processing"]


class ProcessorUnderTest:
    """Gives rows to a processor as Spark would, key by key, and fires its timers.

    `time` names the column with the event time: rows behind the watermark are left out, as Spark
    leaves them out. `pandas` is for processors of `transformWithStateInPandas`.
    """

    def __init__(
        self,
        processor: StatefulProcessor,
        *,
        time_mode: TimeMode = "none",
        time: str | None = None,
        pandas: bool = False,
        day: Day | None = None,
    ) -> None:
        self.day = day or Day()
        self._processor = processor
        self._mode = time_mode
        self._time = time
        self._pandas = pandas
        self._now = self.day.millis("00:00")
        self._watermark = 0
        self._handle = Handle(time_mode, self._clock)
        handle: Any = self._handle
        processor.init(handle)

    def rows(self, key: Any, *rows: Mapping[str, Any]) -> Rows:
        """Rows of one key that come in one batch; what the processor emits for them."""
        own = self._key(key)
        typed = [self._typed(row) for row in rows]
        kept = [row for row in typed if not self._late(row)]
        self._handle.key = own
        given = self._frames(kept) if self._pandas else iter([_row(row) for row in kept])
        return self._emitted(self._processor.handleInputRows(own, given, self._timers()))

    def watermark(self, time: str) -> Rows:
        """The watermark moves to this time; what the timers emit that it fires."""
        self._watermark = self.day.millis(time)
        self._handle.watermark = self._watermark
        return self._fire(self._watermark) if self._mode == "event" else self._emitted([])

    def advance(self, time: str) -> Rows:
        """Processing time passes; what the timers emit that it fires. State with a TTL ages."""
        self._now += millis(time)
        return self._fire(self._now) if self._mode == "processing" else self._emitted([])

    def state(self, name: str, key: Any) -> Any:
        """A variable of a key: a value's tuple, a list of tuples, a dictionary; None if nothing."""
        self._handle.key = self._key(key)
        return self._handle.shown(name)

    def timers(self, key: Any) -> list[str]:
        """When the timers of a key fire."""
        self._handle.key = self._key(key)
        return [self.day.shown_millis(at) for at in self._handle.listTimers()]

    @property
    def now(self) -> str:
        return self.day.shown_millis(self._now)

    def _clock(self) -> int:
        return self._now

    def _fire(self, until: int) -> Rows:
        from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo

        found: list[Any] = []
        for at, key in self._handle.due(until):
            self._handle.key = key
            self._handle.deleteTimer(at)
            # By keyword, as Spark's worker does it: another name of a parameter fails there too.
            found += self._processor.handleExpiredTimer(
                key=key, timerValues=self._timers(), expiredTimerInfo=ExpiredTimerInfo(at)
            )
        return self._emitted(found)

    def _timers(self) -> Any:
        from pyspark.sql.streaming.stateful_processor import TimerValues

        if self._mode == "none":
            return TimerValues(-1, -1)
        return TimerValues(self._now, self._watermark if self._mode == "event" else -1)

    def _typed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        typed = dict(row)
        if self._time is not None and isinstance(typed.get(self._time), str):
            moment = self.day.moment(typed[self._time]).astimezone(dt.UTC)
            typed[self._time] = moment.replace(tzinfo=None)  # as workers see times
        return typed

    def _late(self, row: Mapping[str, Any]) -> bool:
        if self._mode != "event":
            return False
        if self._time is None:
            raise Refused(Finding("TEST_INVALID", "time_mode event needs `time`: the column"))
        at = row[self._time].replace(tzinfo=dt.UTC)
        return bool(at.timestamp() * 1000 <= self._watermark)

    def _frames(self, rows: list[dict[str, Any]]) -> Iterator[Any]:
        import pandas as pd

        return iter([pd.DataFrame(rows)] if rows else [])

    def _emitted(self, given: Iterable[Any] | None) -> Rows:
        found: list[dict[str, Any]] = []
        for one in given or ():
            if hasattr(one, "to_dict"):
                found += one.to_dict("records")
            else:
                found.append(one.asDict(recursive=True))
        return Rows(found, self.day, type(self._processor).__name__)

    @staticmethod
    def _key(key: Any) -> tuple[Any, ...]:
        return key if isinstance(key, tuple) else (key,)


def _row(values: Mapping[str, Any]) -> Any:
    from pyspark.sql import Row

    return Row(**values)
