"""Queries whose next batch begins when Python says so, at the time that it says (private API, 4.3).

Spark asks the clock of a trigger for the time, and waits with it for the next batch. The clock here
is Python's: where Spark waits, the last batch is done.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_LOOK_EVERY = 0.05  # seconds, at a query that may have ended instead of waiting
_FAR = 1 << 60  # milliseconds; lets go of whoever waits


class StepClock:
    """The clock of one query, in milliseconds."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._changed = threading.Condition()
        self._waits = False
        self._let_go = False

    @property
    def now(self) -> int:
        return self._now

    def until_it_waits(self, query: StreamingQuery) -> bool:
        """Return when the batch is done; False when the query has ended."""
        with self._changed:
            while not self._waits:
                if not self._changed.wait(_LOOK_EVERY) and not query.isActive:
                    return False
        return True

    def step(self, to: int, query: StreamingQuery) -> bool:
        """Let one trigger happen, at a later time; return when it is over, False if by its end."""
        with self._changed:
            self._waits = False
            self._now = max(to, self._now + 1)
            self._changed.notify_all()
        return self.until_it_waits(query)

    def let_go(self) -> None:
        with self._changed:
            self._let_go = True
            self._changed.notify_all()

    # What Spark calls.

    def getTimeMillis(self) -> int:
        return self._now

    def nanoTime(self) -> int:
        return time.monotonic_ns()

    def waitTillTime(self, until: int) -> int:
        with self._changed:
            self._waits = True
            self._changed.notify_all()
            while self._now < until and not self._let_go:
                self._changed.wait()
            self._waits = False
            return _FAR if self._let_go else self._now

    class Java:
        implements = ("org.apache.spark.util.Clock",)


class SteppedQuery:
    """A query that can be stopped while it waits for its clock. All else is the query's own."""

    def __init__(self, query: StreamingQuery, clock: StepClock) -> None:
        self._query = query
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def newest_progress(self) -> dict[str, Any]:
        """Spark's own, as it comes; of a query that has run a batch."""
        found: dict[str, Any] = json.loads(self._query._jsq.lastProgress().json())
        return found

    def stop(self) -> None:
        stopping = threading.Thread(target=self._query.stop, daemon=True)
        stopping.start()
        while self._query.isActive:  # else what waits would begin one more batch
            time.sleep(0.001)
        self._clock.let_go()
        stopping.join()


def begin(writer: DataStreamWriter, frame: DataFrame, clock: StepClock) -> Any:
    """Start what a writer would start, with a clock of ours. The writer has a batch function."""
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.sql.streaming.query import StreamingQuery

    session = frame.sparkSession
    gateway = session.sparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    jvm: Any = session._jvm
    java: Any = writer._jwrite
    java_frame: Any = frame._jdf

    def of_writer(field: str) -> Any:
        found = java.getClass().getDeclaredField(field)
        found.setAccessible(True)
        return found.get(java)

    options = of_writer("extraOptions")
    sinks = jvm.org.apache.spark.sql.execution.streaming.sources
    nothing = jvm.scala.Option.empty()
    query = (
        session._jsparkSession.sessionState()
        .streamingQueryManager()
        .startQuery(
            options.get("queryName"),
            options.get("checkpointLocation"),
            options.get("checkpointLocation"),
            java_frame,
            options,
            sinks.ForeachBatchSink(of_writer("foreachBatchWriter"), java_frame.exprEnc()),
            of_writer("outputMode"),
            False,
            True,
            of_writer("trigger"),
            clock,
            nothing,
            nothing,
        )
    )
    return SteppedQuery(StreamingQuery(query), clock)
