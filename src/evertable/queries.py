"""What Python code sees of tables that run: one handle a query, and calls back when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evertable.run.events import (
    Batch,
    Ended,
    Event,
    Idle,
    Noticed,
    Refreshed,
    Retrying,
    Started,
)
from evertable.spark import planner

if TYPE_CHECKING:
    from evertable.errors import Finding
    from evertable.run.runner import Runner, Stopped
    from evertable.run.table_run import TableRun


class QueryHandle:
    """The Spark query of one table."""

    def __init__(self, runner: Runner, run: TableRun) -> None:
        self._runner = runner
        self._run = run

    @property
    def name(self) -> str:
        """The table's name, which is the query's too."""
        return self._run.table.name

    @property
    def id(self) -> str:
        """Stays the same over restarts: it is kept in the checkpoint."""
        return self._query.id if self._query is not None else ""

    @property
    def run_id(self) -> str:
        """Another one at every start."""
        return self._query.runId if self._query is not None else ""

    @property
    def state(self) -> str:
        """ready, running, backing off, finished, stopped or failed."""
        self._run.ended()
        return "backing off" if self._run.backing_off else self._run.state.value

    @property
    def status(self) -> dict[str, Any]:
        """What Spark says that it is doing: message, isDataAvailable, isTriggerActive."""
        return self._query.status if self._query is not None else {}

    @property
    def recent_progress(self) -> Sequence[dict[str, Any]]:
        """Spark's own progress of the last batches, oldest first."""
        return self._run.recent_progress()

    @property
    def last_progress(self) -> dict[str, Any] | None:
        """Spark's own progress of the newest batch."""
        return next(reversed(self.recent_progress), None)

    @property
    def exception(self) -> Finding | None:
        """Why the table failed; None as long as it did not."""
        self._run.ended()
        return self._run.finding

    def explain(self, *, extended: bool = False) -> str:
        """The plan of the newest batch."""
        query = self._run.query
        return planner.explained(query, extended=extended) if query is not None else ""

    def stop(self) -> list[Stopped]:
        """End this table after the batch it is in; the others go on."""
        return self._runner.stop([self.name])

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the table has ended; False if the time was over before."""
        return self._run.wait(timeout)

    def __repr__(self) -> str:
        return f"<query {self.name!r}: {self._run.state.value}>"

    @property
    def _query(self) -> Any:
        return self._run.query


class Listeners:
    """Functions of the user's, called with what happens; one that fails harms nobody."""

    def __init__(self) -> None:
        self._by_kind: dict[type, list[Callable[[Any], object]]] = {}

    def add(
        self,
        *,
        start: Callable[[Started], object] | None = None,
        progress: Callable[[Batch], object] | None = None,
        idle: Callable[[Idle], object] | None = None,
        refresh: Callable[[Refreshed], object] | None = None,
        retry: Callable[[Retrying], object] | None = None,
        notice: Callable[[Noticed], object] | None = None,
        end: Callable[[Ended], object] | None = None,
    ) -> None:
        given = {
            Started: start,
            Batch: progress,
            Idle: idle,
            Refreshed: refresh,
            Retrying: retry,
            Noticed: notice,
            Ended: end,
        }
        for kind, function in given.items():
            if function is not None:
                self._by_kind.setdefault(kind, []).append(function)

    def tell(self, event: Event) -> None:
        for function in self._by_kind.get(type(event), ()):
            try:
                function(event)
            except Exception:
                logging.getLogger("evertable").exception(
                    "a listener of %s failed, and the table goes on", type(event).__name__.lower()
                )
