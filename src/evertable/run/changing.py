"""The way that a table takes after an edit: goes on, goes on as it was, or begins anew.

Decides before a table starts; what it does can be done again after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from evertable.errors import AnswerNeeded, Finding, Refused
from evertable.model.pipeline import Pipeline, SinkSpec, Static, Stream, Table, View
from evertable.plan.answers import Answer
from evertable.plan.changes import Judgement
from evertable.plan.manifest import Manifest
from evertable.plan.ways import why_not
from evertable.run.analysis import Analysed
from evertable.run.planning import Planning, refusal
from evertable.run.positions import positioned
from evertable.run.second import second_table
from evertable.run.swapping import finish_swap
from evertable.run.targets import sink_options
from evertable.sinks.grip import grip
from evertable.spark.session import of_a_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Course:
    """What is to be run in the place of a table."""

    pipeline: Pipeline
    table: Table
    manifest: Manifest | None = None  # to be noted when it starts
    answer: str = ""
    beside: Table | None = None  # another one, that runs too
    rebuilt: bool = False  # `beside` takes the table's place when it has caught up
    anew: bool = False  # the analysis has to be made again


class Changing:
    """Asks for the verdict on a table, and goes the way that was chosen."""

    def __init__(
        self, pipeline: Pipeline, table: Table, session: SparkSession, given: Answer | None = None
    ) -> None:
        self._pipeline = pipeline
        self._session = session
        self._table = table
        self._given = given
        self.planning = Planning(pipeline, table)

    def make_good(self) -> None:
        """Finish what a crash has interrupted; only for who holds the lock."""
        finish_swap(self._pipeline, self._table)
        self.planning.checkpoint.clear_drafts()

    def course(self, analysed: Analysed) -> Course:
        """Raises Refused where an answer is needed and none fits."""
        judgement, made = self.planning.judged(analysed)
        answers = self.planning.answers
        if judgement.new:
            return self._begins(made)
        if judgement.goes_on:
            answers.forget()
            return Course(self._pipeline, self._table, made)
        version = self.planning.keeping.newest(self.planning.standing())
        old = version.manifest if version else Manifest(self._table.name)
        answer = self._answer(judgement, old, made)
        if answer.way == "accept":
            return Course(self._pipeline, self._table, made, answer="accept")
        if answer.way == "start_over":
            return self._starts_over(answer, made)
        if answer.way == "rebuild":
            second = second_table(self._table, self._free(f"{self._table.name}__new"))
            return Course(self._pipeline, self._table, made, "rebuild", beside=second, rebuilt=True)
        before = restored(self._pipeline, self._table, old.definition)
        of_a_table(self._session, old.confs)
        if answer.way == "keep_old":
            return Course(*before, answer="keep_old", anew=True)
        second = second_table(self._table, self._free(answer.name or f"{self._table.name}_2"))
        return Course(*before, answer="beside", beside=second, anew=True)

    def _free(self, name: str) -> str:
        """A name for a second table, which no table of the pipeline has."""
        if self._pipeline.table(name) is not None:
            raise Refused(
                Finding(
                    "ANSWER_NOT_OFFERED",
                    f'there is a table "{name}" already',
                    self._table.location,
                    hint=f"--answer {self._table.name}=beside:NAME, or rename that one",
                )
            )
        return name

    def confirm(self, course: Course, analysed: Analysed) -> None:
        """An old query that goes on is the one that the checkpoint knows."""
        if course.answer not in ("keep_old", "beside"):
            return
        judgement, _ = Planning(course.pipeline, course.table).judged(analysed)
        if not judgement.goes_on:
            raise Refused(refusal(judgement))

    def _answer(self, judgement: Judgement, old: Manifest, made: Manifest) -> Answer:
        """The one that was given for this very edit."""
        digests = judgement.told["old"], judgement.told["new"]
        standing = self.planning.standing()
        if self._given is not None:
            offered = {offer.way for offer in judgement.offers}
            if self._given.way not in offered:
                raise Refused(not_offered(judgement, self._given, old, made))
            given = replace(
                self._given, old=digests[0], new=digests[1], since=standing.query_id,
                from_offsets=dict(standing.offsets),
            )  # fmt: skip
            self.planning.answers.keep(given)
            return given
        kept = self.planning.answers.read()
        if kept is None or not kept.fits(*digests):
            finding = refusal(judgement)
            raise AnswerNeeded(finding) if judgement.verdict == "mixed" else Refused(finding)
        return kept

    def _starts_over(self, answer: Answer, made: Manifest) -> Course:
        standing = self.planning.standing()
        self.planning.keeping.settle(standing)
        self.planning.keeping.note("start_over", standing, f"start_over:{answer.position}")
        self.planning.checkpoint.set_aside()
        return self._begins(made)

    def _begins(self, made: Manifest) -> Course:
        """A checkpoint without batches: a first start, or one that was forgotten."""
        answer = self.planning.answers.read()
        if answer is None or answer.way != "start_over":
            return Course(self._pipeline, self._table, made)
        for spec in self._table.sinks:
            self._release(spec)
        pipeline = positioned(self._pipeline, self._table, self.planning.checkpoint, answer, made)
        return Course(pipeline, self._table, made, answer="start_over", anew=True)

    def _release(self, spec: SinkSpec) -> None:
        """Rows stay, and belong to the query that comes."""
        options = sink_options(self._pipeline, self._table, spec)
        found = grip(self._pipeline, self._table, spec, options)
        held = found.held() if found else None
        if found and held and held.query_id != self.planning.checkpoint.query_id():
            found.release()

    def begins(self, course: Course) -> None:
        """The query is about to start: note what it is."""
        standing = self.planning.standing()
        if course.manifest is not None:
            self.planning.keeping.begin(course.manifest, standing, answer=course.answer)
        else:
            self.planning.keeping.note("started", standing, course.answer)


def not_offered(judgement: Judgement, answer: Answer, old: Manifest, new: Manifest) -> Finding:
    """Why a way that was asked for cannot be gone."""
    why = why_not(answer.way, old, new) or f'it is no way out of "{judgement.verdict}"'
    return Finding(
        "ANSWER_NOT_OFFERED",
        f'table "{judgement.table}" cannot go the way of {answer.way}',
        judgement.place,
        detail=why,
        hint="ways: " + (", ".join(o.way for o in judgement.offers) or "take the edit back"),
    )


def restored(
    pipeline: Pipeline, table: Table, definition: Mapping[str, Any]
) -> tuple[Pipeline, Table]:
    """The pipeline in which a table is what it was."""
    if not definition:  # its way was refused, or it only stands still meanwhile
        return pipeline, table
    streams = _values(Stream, definition["streams"], pipeline.streams)
    statics = _values(Static, definition["statics"], pipeline.statics)
    views = _values(View, definition["views"], pipeline.views)
    (before,) = _values(Table, [definition["table"]], [table])
    tables = tuple(before if t.name == table.name else t for t in pipeline.tables)
    return (
        replace(
            pipeline,
            streams=_over(pipeline.streams, streams),
            statics=_over(pipeline.statics, statics),
            views=_over(pipeline.views, views),
            tables=tables,
        ),
        before,
    )


def _values(kind: type[Any], given: list[Any], known: Any) -> tuple[Any, ...]:
    """Values of the model, at the places where their names stand now."""
    places = {entry.name: entry.location for entry in known}
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    made = (adapter.validate_python(one) for one in given)
    return tuple(replace(one, location=places.get(one.name)) for one in made)


def _over(now: tuple[Any, ...], before: tuple[Any, ...]) -> tuple[Any, ...]:
    names = {entry.name for entry in before}
    return (*before, *(entry for entry in now if entry.name not in names))
