"""What is said of one change, and of all changes of a table together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from evertable.location import Location

Verdict = Literal["same", "safe", "note", "mixed", "corrupts", "fails"]
VERDICTS: tuple[Verdict, ...] = ("same", "safe", "note", "mixed", "corrupts", "fails")
GOES_ON: frozenset[Verdict] = frozenset({"same", "safe", "note"})
Way = Literal["keep_old", "accept", "beside", "start_over", "rebuild"]
WAYS: tuple[Way, ...] = ("keep_old", "accept", "beside", "start_over", "rebuild")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not as it was."""

    code: str
    verdict: Verdict
    message: str  # "a group key is replaced by one of the same type"
    before: str = ""
    after: str = ""
    detail: str = ""  # what Spark would do, and to which rows
    spark: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """One way forward that a table can take."""

    way: Way
    said: str
    cost: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an edit means to one table."""

    table: str
    verdict: Verdict
    changes: tuple[Change, ...] = ()
    offers: tuple[Offer, ...] = ()
    batch: int = -1  # the next one; -1 for a table that never ran
    new: bool = False  # it never ran
    answer: str = ""  # a way that was chosen and not yet gone
    place: Location | None = None
    told: Mapping[str, str] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """Whether `run` may start it as it is."""
        return self.verdict in GOES_ON


def worst(changes: Iterable[Change]) -> Verdict:
    """The verdict of several changes together."""
    return max((c.verdict for c in changes), key=VERDICTS.index, default="same")
