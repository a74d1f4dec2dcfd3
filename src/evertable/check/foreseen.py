"""What the planner's facts mean to a table's owner: what is kept, emitted and promised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from evertable.model.capabilities import Guarantee, SinkCapabilities
from evertable.model.durations import short
from evertable.model.facts import Kept, Plan
from evertable.model.pipeline import SinkSpec, Table


class Target(NamedTuple):
    """One sink of a table."""

    spec: SinkSpec
    record: SinkCapabilities
    promise: Guarantee


@dataclass(frozen=True)
class Foreseen:
    """A table and what Spark's planner says of it; what rules judge by."""

    table: Table
    plan: Plan
    lossy: tuple[str, ...] = ()  # streams whose source cannot give a past batch again
    twice: tuple[str, ...] = ()  # streams that the query reads more than once
    targets: tuple[Target, ...] = ()
    local: bool = True  # the master is this machine
    slots: int = 1
    partitions_given: bool = False  # spark.sql.shuffle.partitions stands in the file


def growing(plan: Plan) -> list[Kept]:
    """What is kept for ever, by more and more keys."""
    return [kept for kept in plan.kept if kept.bound == "growing"]


def keeps(seen: Foreseen) -> str:
    """3m of impressions, 1m of clicks"""
    if seen.plan.unknown:
        return "not known"
    return ", ".join(keeps_of(seen.plan.kept)) or "nothing"


def keeps_of(kept: Iterable[Kept]) -> list[str]:
    """What operators keep, each said once."""
    return list(dict.fromkeys(_kept(one) for one in kept))


def _kept(kept: Kept) -> str:
    what = key_names(kept.keys)
    match kept.kind, kept.bound:
        case "join", "growing":
            return f"all of {kept.of}, for ever"
        case "join", _:
            return f"{short(kept.window + kept.millis)} of {kept.of}"
        case "limit", _:
            return "a count"
        case "python", _:
            return "what your code keeps"
        case _, "constant":
            return "1 row"
        case ("window" | "session") as kind, "growing":
            return f"all {kind}s, for ever"
        case _, "growing":
            return f"each {what}, for ever"
        case "window", _:
            return f"the windows of the last {short(kept.window + kept.millis)}"
        case "session", _:
            return f"sessions, {short(kept.millis)} after they end"
    return f"each {what}, for {short(kept.millis)}"


def emits(seen: Foreseen) -> str:
    """2m after a window ends"""
    if seen.plan.unknown:
        return "not known"
    if seen.table.output_mode == "complete":
        return "every batch, all of it"
    last = holds_back(seen)
    if last is None:
        outer = [k for k in seen.plan.kept if _pads(k)]
        if outer:
            latest = max(kept.millis for kept in outer)
            return f"matches at once, NULL rows after {short(latest)}"
        if any(kept.kind == "limit" for kept in seen.plan.kept):
            return "the first rows only"
        return "every batch"
    what = {"window": "a window ends", "session": "a session ends"}.get(last.kind, "its time")
    return f"{short(last.millis)} after {what}"


def holds_back(seen: Foreseen) -> Kept | None:
    """The operator that gives rows only when they are final: the last one before the sink."""
    final = seen.table.output_mode == "append"
    waiting = (
        kept
        for kept in seen.plan.kept  # from the sink down
        if final and kept.bound == "bounded" and kept.kind in ("window", "session", "aggregate")
    )
    return next(waiting, None)


def _pads(kept: Kept) -> bool:
    """Whether rows of this side of a join come out with NULLs when they found no match."""
    outer = {"left outer": ("left",), "right outer": ("right",), "full outer": ("left", "right")}
    return kept.kind == "join" and kept.side in outer.get(kept.join, ())


def emission(seen: Foreseen) -> list[str]:
    """When rows come out, in sentences."""
    if seen.plan.unknown:
        return [f"cannot be told: {seen.plan.unknown}"]
    if seen.table.output_mode == "complete":
        return ["the whole result, every batch that has rows"]
    said = [*_of_operators(seen), *_of_idle_inputs(seen)]
    return said or ["each row in the batch that it comes in"]


def _of_operators(seen: Foreseen) -> Iterator[str]:
    last = holds_back(seen)
    columns = {mark.column for mark in seen.plan.marks}
    inputs = "on every input " if len(columns) > 1 and seen.plan.policy == "min" else ""
    for kept in seen.plan.kept:
        keys = key_names(k for k in kept.keys if k not in ("window", "session_window"))
        each = "" if keys == "row" else f" and {keys}"
        if kept is last:
            ends = {
                "window": f"one final row a window{each}, once an event later than its end",
                "session": f"one final row a session{each}, once an event later than its end "
                f"({short(kept.window)} after its last event)"
                if kept.window
                else f"one final row a session{each}, once an event later than its end",
            }.get(kept.kind, f"one final row a {key_names(kept.keys)}, once an event later than it")
            yield f"{ends} + {short(kept.millis)} was seen {inputs}".rstrip()
        elif kept.bound == "constant" and kept.kind != "limit":
            yield "its one row, in every batch that has rows"
        elif kept.kind in ("window", "session", "aggregate") and kept.bound != "bounded":
            yield f"a row for each {key_names(kept.keys)} that changed, every batch"
        elif kept.kind in ("window", "aggregate") and seen.table.output_mode == "update":
            yield (
                f"a row for each {key_names(kept.keys)} that changed, every batch; it stays open "
                f"for {short(kept.millis)} after its {'end' if kept.kind == 'window' else 'time'}"
            )
        elif kept.kind.startswith("dedup"):
            yield f"the first row of each {key_names(kept.keys)}, at once"
        elif kept.kind == "join" and kept.side == "left":
            yield "a row for each match, at once"
        elif kept.kind == "limit":
            yield f"the first {kept.limit:,} rows, and never one more"
        elif kept.kind == "python":
            yield "what your code yields" + (
                f", also when its timers fire by {kept.timers}" if kept.timers != "none" else ""
            )
        if _pads(kept):
            yield (
                f"a row of {kept.of} without a match, with NULLs, once an event later than it "
                f"+ {short(kept.millis)} was seen {inputs}"
            ).rstrip()


def _of_idle_inputs(seen: Foreseen) -> Iterator[str]:
    """What an input without rows does to the others."""
    waits = holds_back(seen) or next((k for k in seen.plan.kept if _pads(k)), None)
    if waits is None:
        return
    marks = {mark.of or mark.column for mark in seen.plan.marks}
    if len(marks) < 2:
        yield "while no rows come nothing becomes final"
    elif seen.plan.policy == "min":
        yield f"while one of {_and(sorted(marks))} is idle nothing becomes final (policy min)"
    else:
        yield (
            f"the one of {_and(sorted(marks))} that is ahead decides what is final; rows of the "
            "others may be late, and are dropped (policy max)"
        )


class Promise(NamedTuple):
    """What a table promises from source to sink, and which part of it decides that."""

    word: Guarantee
    because: str


def promise(seen: Foreseen, target: Target) -> Promise:
    """How often a row of the source counts in one sink, whatever crashes."""
    format = target.spec.format
    if target.promise == "nothing kept":
        return Promise("nothing kept", f"sink {format} keeps no rows")
    if seen.lossy:
        return Promise("at most once", f"stream {seen.lossy[0]} cannot be read again after a crash")
    if seen.table.trigger.kind == "continuous":
        return Promise("at least once", "a continuous trigger repeats rows after a crash")
    if target.promise == "exactly once":
        return Promise("exactly once", f"{format} keeps rows and ledger in one commit")
    if target.promise == "at least once":
        return Promise("at least once", f"sink {format} may get a batch twice after a crash")
    return Promise(target.promise, f"sink {format} is not ours")


def lasts(seen: Foreseen) -> int | None:
    """Seconds that state is kept at the most; None where something is kept for ever."""
    bounds = {kept.bound for kept in seen.plan.kept}
    if seen.plan.unknown or bounds & {"growing", "yours"}:
        return None
    return max((kept.window + kept.millis for kept in seen.plan.kept), default=0) // 1000


def key_names(keys: Iterable[str]) -> str:
    """What a state is kept by, as people call it."""
    return ", ".join(dict.fromkeys(k for k in keys if k != "spark_grouping_id")) or "row"


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
