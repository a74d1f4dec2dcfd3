"""A table's claims on the targets of its sinks: taken together, judged, given up together."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evertable.errors import Refused
from evertable.model.pipeline import Pipeline, SinkSpec, Table
from evertable.run.ledger import judge
from evertable.run.targets import sink_options
from evertable.sinks.functions import Show
from evertable.sinks.registry import open_sink
from evertable.sinks.seam import Session, Sink
from evertable.spark.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class Claims:
    """The sinks that we write ourselves, and a session of each."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        table: Table,
        show: Show,
        at: Checkpoint,
        played: Sink | None = None,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._table = table
        self._show = show
        self._checkpoint = at
        self._sinks = None if played is None else [(table.sinks[0], played)]
        self.sessions: list[Session] = []

    def take(self, query_id: str) -> None:
        """Open every sink; refuse one that does not fit the checkpoint."""
        if self._sinks is None:
            self._sinks = self._made()
        try:
            for spec, sink in self._sinks:
                session = sink.open(self._table, query_id)
                self.sessions.append(session)
                if sink.capabilities.ledger:
                    self._judge(spec, session, query_id)
        except BaseException:
            self.give_up()
            raise

    def prepare(self, schema: StructType, keys: Sequence[str]) -> None:
        """See that each target is there and takes the rows."""
        for session in self.sessions:
            session.prepare(schema, self._table.output_mode, keys)

    def give_up(self) -> None:
        """Let go of every target."""
        sessions, self.sessions = self.sessions, []
        for session in sessions:
            with contextlib.suppress(Exception):  # of the user's code; the claim is over anyway
                session.close()

    def _made(self) -> list[tuple[SinkSpec, Sink]]:
        found: list[tuple[SinkSpec, Sink]] = []
        for spec in self._table.sinks:
            options = sink_options(self._pipeline, self._table, spec)
            sink = open_sink(self._spark, self._pipeline, self._table, spec, options, self._show)
            if sink is not None:
                found.append((spec, sink))
        return found

    def _judge(self, spec: SinkSpec, session: Session, query_id: str) -> None:
        finding = judge(
            self._table.name,
            spec.location or self._table.location,
            session.last,
            query_id,
            self._checkpoint.last_offset(),
            self._checkpoint.last_commit(),
            self._checkpoint.offsets_digest,
        )
        if finding:
            raise Refused(finding)
