"""One batch into its sinks, once into each. This is what Spark calls for every batch of a table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evertable.errors import Finding, Refused
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import Table
from evertable.run.faults import Fault, FaultHook
from evertable.sinks.seam import Session
from evertable.spark.checkpoint import Checkpoint
from evertable.spark.errors import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Closed(Exception):
    """A batch came after the delivery was closed; nothing of it was written."""


class Delivery:
    """Called with each batch; keeps the first exception for whoever explains it."""

    def __init__(
        self,
        table: Table,
        sessions: Sequence[Session],
        checkpoint: Checkpoint,
        query_id: str,
        keys: Sequence[str],
        at: FaultHook,
        notice: Callable[[Finding], None] = lambda finding: None,
    ) -> None:
        self._table = table
        self._sessions = sessions
        self._checkpoint = checkpoint
        self._query_id = query_id
        self._keys = keys
        self._at = at
        self._notice = notice
        self._gate = threading.Lock()  # held while a batch is delivered
        self._closed = False
        self.turned_away = False  # a batch came when it was closed, and ended the query
        self.error: Exception | None = None
        self.delivered = 0  # batches
        self.rows_out: dict[int, int] = {}  # of the newest batches

    def __call__(self, rows: DataFrame, batch: int) -> None:
        with self._gate:
            if self._closed:
                self.turned_away = True
                raise Closed
            try:
                self._deliver(rows, batch)
                self.delivered += 1
            except Exception as e:
                self.error = e
                raise

    def close(self) -> bool:
        """Let no more batches through; False while one is being delivered."""
        if not self._gate.acquire(blocking=False):
            return False
        self._closed = True
        self._gate.release()
        return True

    def _deliver(self, rows: DataFrame, batch: int) -> None:
        digest = self._checkpoint.offsets_digest(batch)
        if digest is None:
            raise Refused(
                Finding(
                    "CHECKPOINT_GONE",
                    f'the checkpoint of table "{self._table.name}" was removed while it runs',
                    self._table.location,
                )
            )
        entry = LedgerEntry(self._query_id, batch, digest)
        name = self._table.name
        self._at(Fault.BEFORE_DATA, name, batch)
        wanting = [session for session in self._sessions if session.last != entry]
        if not wanting:
            # Written before a crash that came before Spark's commit. Its computation must run all
            # the same: state and watermark are only moved by it.
            rows.write.format("noop").mode("append").save()
            return
        if len(wanting) > 1:  # computed once, whoever reads it
            rows = rows.persist()
        try:
            for session in wanting:
                written = session.write(
                    rows,
                    entry,
                    self._table.output_mode,
                    self._keys,
                    lambda: self._at(Fault.AFTER_DATA, name, batch),
                )
                if written is not None:
                    self.rows_out[batch] = written
                self._at(Fault.AFTER_SINK_COMMIT, name, batch)
        finally:
            if len(wanting) > 1:
                rows.unpersist()
        self.rows_out.pop(batch - 100, None)
        self._maintain()

    def _maintain(self) -> None:
        """A batch that was delivered is no worse for a cleaning that failed."""
        for session in self._sessions:
            try:
                for finding in session.maintain():
                    self._notice(finding)
            except Exception as e:
                finding = explain(e, f'cleaning up after table "{self._table.name}"')
                self._notice(replace(finding.at(self._table.location), severity="warning"))
