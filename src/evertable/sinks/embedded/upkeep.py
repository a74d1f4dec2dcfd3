"""What a SQLite file needs after a batch: old rows removed, their space given back, a small log."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from evertable.errors import Finding
from evertable.model.durations import millis
from evertable.model.pipeline import Retain, Table
from evertable.sinks.embedded.columns import Column, quoted
from evertable.sinks.embedded.ledger import transaction

MOST_LOG = 64 * 1024 * 1024  # bytes of the write-ahead log before readers are asked to let go
_SLACK = 100  # a share of `retain` by which the oldest row may be too old before any is removed
_PATIENCE_MS = 100  # how long a batch waits for a reader


@dataclass(frozen=True)
class Aging:
    """Rows grow old by this column."""

    column: Column
    retain: Retain

    def cutoff(self, oldest: str, newest: str, now: datetime) -> str | None:
        """What is before this is old, as the column's text; None as long as it is not worth it.

        A newest row from the future does not make the others old.
        """
        age = timedelta(milliseconds=millis(self.retain.age))
        moment = min(datetime.fromisoformat(newest), now.replace(tzinfo=None)) - age
        if datetime.fromisoformat(oldest) >= moment - age / _SLACK:
            return None
        if self.column.kind == "DATE_TEXT":
            return moment.date().isoformat()
        text = moment.isoformat(sep=" ")
        return text.rstrip("0").rstrip(".") if "." in text else text


class Upkeep:
    """The work after a batch, on the writer's connection."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        file: str,
        table: Table,
        aging: Aging | None,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        most_log: int = MOST_LOG,
    ) -> None:
        self._connection = connection
        self._log = f"{file}-wal"
        self._table = table
        self._aging = aging
        self._clock = clock
        self._most_log = most_log
        self._said = most_log

    def make(self) -> None:
        """Once, before the first batch."""
        self._connection.execute(f"PRAGMA journal_size_limit={self._most_log}")
        if self._aging is None:
            return
        (mode,) = self._connection.execute("PRAGMA auto_vacuum").fetchone()
        if mode != 2:  # a file from before `retain`: it is made anew, once
            self._connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._connection.execute("VACUUM")
        name = quoted(self._table.name)
        index = quoted(f"{self._table.name}_age")
        column = quoted(self._aging.column.name)
        self._connection.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {name} ({column})")

    def run(self) -> Iterator[Finding]:
        self._remove_old()
        yield from self._fold_log()

    def _remove_old(self) -> None:
        if self._aging is None:
            return
        name, column = quoted(self._table.name), quoted(self._aging.column.name)
        oldest, newest = (
            self._connection.execute(f"SELECT {end}({column}) FROM {name}").fetchone()[0]
            for end in ("min", "max")  # one at a time: then the index answers
        )
        if newest is None:
            return
        cutoff = self._aging.cutoff(oldest, newest, self._clock())
        if cutoff is None:
            return
        with transaction(self._connection):
            self._connection.execute(f"DELETE FROM {name} WHERE {column} < ?", (cutoff,))
        self._connection.executescript("PRAGMA incremental_vacuum")  # `execute` frees one page

    def _fold_log(self) -> Iterator[Finding]:
        """SQLite folds its log back by itself, unless some reader is always in the middle of it."""
        try:
            size = os.path.getsize(self._log)
        except FileNotFoundError:
            return
        if size <= self._most_log:
            return
        self._connection.execute(f"PRAGMA busy_timeout={_PATIENCE_MS}")
        busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._connection.execute("PRAGMA busy_timeout=30000")
        if busy and size >= self._said:
            self._said = size * 2
            yield Finding(
                "LOG_LARGE",
                f'readers keep the write-ahead log of table "{self._table.name}" at '
                f"{size // 1024 // 1024} MB",
                self._table.location,
                detail="it grows until a moment comes in which nobody reads",
                hint="end long transactions of readers; `evertable query` has none",
                severity="warning",
            )
