"""What an edit means to one table: its manifests, its checkpoint and Spark asked together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from evertable.errors import Finding
from evertable.model.pipeline import Pipeline, Table
from evertable.model.shape import Restart
from evertable.model.standing import Standing
from evertable.model.storage import Storage
from evertable.plan.answers import Answers
from evertable.plan.changes import Judgement
from evertable.plan.edit import Edit
from evertable.plan.judge import judge
from evertable.plan.keeping import Keeping
from evertable.plan.manifest import Manifest, comparable
from evertable.plan.ways import offers
from evertable.run.analysis import Analysed
from evertable.run.manifests import manifest_of
from evertable.spark.checkpoint import Checkpoint
from evertable.spark.restart import restart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Planning:
    """One table: what it was, what it is to be."""

    def __init__(self, pipeline: Pipeline, table: Table) -> None:
        storage = Storage.of(pipeline)
        self._pipeline = pipeline
        self.table = table
        self.checkpoint = Checkpoint(storage.checkpoint(table.name))
        self.keeping = Keeping(storage.manifests(table.name))
        self.answers = Answers(storage.answers(table.name))

    def standing(self) -> Standing:
        return self.checkpoint.standing()

    def judged(self, analysed: Analysed) -> tuple[Judgement, Manifest]:
        """What it means to start the table as it is now; nothing is changed."""
        made = manifest_of(self._pipeline, self.table, analysed)
        standing = self.standing()
        place = self.table.query.location or self.table.location
        if standing.last_offset < 0:
            return Judgement(self.table.name, "same", new=True, place=place), made
        begun = self.keeping.begun(standing)
        version = self.keeping.newest(standing) or begun
        if begun is not None and begun.manifest.digest != comparable(begun.manifest, made).digest:
            version = begun  # its rows may be in the sink: they are what an edit is of
        old = version.manifest if version else Manifest(self.table.name, unknown=_NOTHING_KNOWN)
        new = comparable(old, made)
        if version and old.digest == new.digest:
            return Judgement(self.table.name, "same", batch=standing.next_batch, place=place), made
        if version is None:
            judgement = _by_the_checkpoint(self.table, standing, self._dry(analysed, standing))
            told = {"old": old.digest, "new": made.digest}
            return replace(judgement, offers=offers(judgement, old, made), told=told), made
        edit = Edit(old, new, standing, self._dry(analysed, standing))
        judgement = judge(edit, place)
        told = {"old": old.digest, "new": new.digest}
        return replace(judgement, offers=offers(judgement, old, new), told=told), made

    def _dry(self, analysed: Analysed, standing: Standing) -> Restart:
        frame: DataFrame = analysed.frame
        return restart(frame, self.table.output_mode, self.checkpoint.folder, standing)


_NOTHING_KNOWN = "its checkpoint was made without a manifest"


def _by_the_checkpoint(table: Table, standing: Standing, dry: Restart) -> Judgement:
    """What a checkpoint tells that another program has made."""
    from evertable.plan.changes import Change

    place = table.query.location or table.location
    if dry.error:
        change = Change(
            "RESTART_REFUSED", "fails", "Spark refuses to start on its checkpoint", "", "",
            "asked with a copy of the checkpoint's metadata", dry.error,
        )  # fmt: skip
        return Judgement(table.name, "fails", (change,), batch=standing.next_batch, place=place)
    change = Change(
        "PLAN_NOT_COMPARED", "note", "what it computed until now is not known", "", "",
        f"{_NOTHING_KNOWN}; Spark's own checks pass: the types of its state fit",
    )  # fmt: skip
    return Judgement(table.name, "note", (change,), batch=standing.next_batch, place=place)


def refusal(judgement: Judgement) -> Finding:
    """Why a table may not start as it is."""
    worst = next(c for c in judgement.changes if c.verdict == judgement.verdict)
    said = [c for c in judgement.changes if c.verdict == judgement.verdict]
    parts = [worst.detail]
    for change in said:
        if change.before or change.after:
            parts += [f"- {change.before}", f"+ {change.after}"]
    ways = [f"  {o.way:<12} {o.said}" for o in judgement.offers]
    return Finding(
        f"CHECKPOINT_{judgement.verdict.upper()}",
        f'table "{judgement.table}": {"; ".join(dict.fromkeys(c.message for c in said))}',
        judgement.place,
        detail="\n".join(filter(None, parts)),
        hint="\n".join(
            [
                f"pick one, with `evertable plan` in a terminal or --answer {judgement.table}=WAY",
                *ways,
            ]
        )
        if ways
        else "take the edit back, or write the new query as a table of its own",
        spark=worst.spark,
    )
