"""The ways forward from a verdict: which there are, and the steps of each.

`plan` says the steps and `run` takes them: one list for both. Each can be the last one before a
crash; the same command again goes on with the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evertable.plan.changes import Judgement, Offer, Verdict, Way
from evertable.plan.manifest import Manifest

Act = Literal[
    "old query", "new query", "second table", "set checkpoint aside", "release sinks", "position",
    "build beside", "catch up", "swap",
]  # fmt: skip
_SWAPPING = ("embedded", "postgres")
_OF_ITS_OWN = ("embedded", "postgres", "memory", "console", "noop")  # a second target can be made


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done on a way."""

    act: Act
    said: str


STEPS: dict[Way, tuple[Step, ...]] = {
    "keep_old": (Step("old query", "the table goes on with its old query, from its manifest"),),
    "accept": (Step("new query", "the new query goes on with the checkpoint as it is"),),
    "beside": (
        Step("old query", "the table goes on with its old query, from its manifest"),
        Step("second table", "the new query runs as a table of its own, from its beginning"),
    ),
    "start_over": (
        Step("set checkpoint aside", "the checkpoint is kept beside, and forgotten"),
        Step("release sinks", "rows stay; the ledger begins anew"),
        Step("position", "streams are read from the position that was asked for"),
        Step("new query", "the new query starts"),
    ),
    "rebuild": (
        Step("old query", "the old table stays as it is, for all who read it"),
        Step("build beside", "all input that is still there goes into a new version"),
        Step("catch up", "what came meanwhile, too"),
        Step("swap", "the new version takes the name; the old one is kept until it is dropped"),
    ),
}
_SAID: dict[Way, str] = {
    "keep_old": "keep the old query",
    "accept": "go on: what is kept by the old query comes out as it is",
    "beside": "the new query as a table of its own; the old one goes on",
    "start_over": "forget the state, read on from where it stands; old rows stay",
    "rebuild": "all retained input into a new version, then swap",
}
_FOR: dict[Verdict, tuple[Way, ...]] = {
    "mixed": ("keep_old", "start_over", "rebuild", "accept", "beside"),
    "corrupts": ("keep_old", "beside", "start_over", "rebuild"),
    "fails": ("keep_old", "beside", "start_over", "rebuild"),
}


def offers(judgement: Judgement, old: Manifest, new: Manifest) -> tuple[Offer, ...]:
    """The ways that a table can take, the one that changes least first."""
    return tuple(
        Offer(way, _SAID[way], _cost(way, new))
        for way in _FOR.get(judgement.verdict, ())
        if not why_not(way, old, new)
    )


def why_not(way: Way, old: Manifest, new: Manifest) -> str:
    """Why a table cannot take a way; empty where it can."""
    if way in ("keep_old", "beside") and not old.definition:
        return "its old query is not SQL alone, so it is not in the manifest"
    if way == "beside" and any(t.format not in _OF_ITS_OWN for t in new.targets):
        return "a second target cannot be made up for its sink; write a second table"
    if way in ("start_over", "rebuild") and not (old.named and new.named):
        return "its sources have no names in the checkpoint"
    if way == "start_over" and any(t.files for t in new.targets):
        return "Spark's log of batches in its folder knows the old ones; name another folder"
    if way == "rebuild":
        if len(new.targets) != 1 or new.targets[0].format not in _SWAPPING:
            return f"only a table kept in {' or '.join(_SWAPPING)} alone can be swapped"
        if not all(s.replays for s in new.sources):
            return "its source cannot be read again"
        if any("timeMode" in o.settings for o in (new.shape.operators if new.shape else ())):
            return "state of transformWithState knows its folder, and cannot be moved"
    return ""


def _cost(way: Way, new: Manifest) -> str:
    if way == "rebuild":
        return "reads " + ", ".join(dict.fromkeys(s.stream for s in new.sources)) + " again"
    return ""
