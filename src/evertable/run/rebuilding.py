"""A new version of a table, built beside the old one until it may take its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from evertable.errors import EvertableError
from evertable.model.pipeline import Pipeline, Table, Trigger
from evertable.model.storage import Storage
from evertable.plan.answers import Answer, Answers
from evertable.run.swapping import forget_version
from evertable.spark.checkpoint import Checkpoint

if TYPE_CHECKING:
    from evertable.run.table_run import TableRun

_MOST_PASSES = 5
# What a version says that another edit has begun, and nobody will finish.
_OF_ANOTHER_EDIT = {
    "CHECKPOINT_CORRUPTS", "CHECKPOINT_MIXED", "CHECKPOINT_FAILS", "TARGET_OWNED", "SINK_SCHEMA",
}  # fmt: skip


def rebuilding(table: Table) -> Table:
    """The new version, which ends when it has read what there is."""
    return replace(table, trigger=Trigger(kind="available_now"))


def begin_anew(pipeline: Pipeline, second: TableRun) -> None:
    """Prepare it to read all there is; what another edit has left behind goes first."""
    storage = Storage.of(pipeline)
    answers = Answers(storage.answers(second.table.name))
    if Checkpoint(storage.checkpoint(second.table.name)).last_offset() < 0:
        answers.keep(Answer("start_over", "earliest"))
    try:
        second.prepare()
    except EvertableError as e:
        if e.findings[0].code not in _OF_ANOTHER_EDIT:
            raise
        forget_version(pipeline, second.table)
        answers.keep(Answer("start_over", "earliest"))
        second.prepare()


def passed_again(second: TableRun, passes: int) -> bool:
    """Whether rows may have come while it read, so that it should look once more."""
    rows = sum(p.get("numInputRows", 0) for p in second.recent_progress())
    return rows > 0 and passes < _MOST_PASSES
