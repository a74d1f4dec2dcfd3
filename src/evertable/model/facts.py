"""What Spark's planner says of a query before it starts, as plain values for rules to judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from evertable.location import Location
from evertable.model.shape import Shape

Bound = Literal["bounded", "growing", "constant", "yours"]
Kind = Literal[
    "aggregate", "window", "session", "dedup", "dedup within watermark", "join", "limit", "python"
]
Timers = Literal["", "none", "event time", "processing time"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark in a query."""

    column: str
    millis: int  # its delay
    of: str = ""  # the streams whose rows it sees
    below: tuple[Kind, ...] = ()  # stateful operators that come before it, which it cannot bound


@dataclass(frozen=True, slots=True)
class Code:
    """What can be seen of a stateful function of the user's without running it."""

    states: tuple[str, ...] = ()  # its state variables
    ageing: tuple[str, ...] = ()  # those with a time to live
    timers: bool = False  # it sets timers, or a timeout
    removes: bool = False  # it clears or removes state


@dataclass(frozen=True, slots=True)
class Kept:
    """What one stateful operator keeps; of a join, what one of its sides keeps."""

    kind: Kind
    bound: Bound
    keys: tuple[str, ...] = ()
    column: str = ""  # the event time by which it ends
    millis: int = 0  # how long after that time it is kept, delays included, if streams keep step
    behind: int = 0  # how far Spark holds the watermark of a chained operator behind the query's
    window: int = 0  # the length of the windows, or the gap of sessions, in milliseconds
    slide: int = 0  # from the start of one window to that of the next
    of: str = ""  # the streams that come into it; of a join, into this side
    join: str = ""  # inner, left outer, …
    side: Literal["", "left", "right"] = ""  # of a join
    limit: int = 0  # of a limit: how many rows there will ever be
    timers: Timers = ""  # of Python state
    code: Code | None = None  # of Python state, where it can be seen
    derived: tuple[str, ...] = ()  # keys that are computed from an event time
    marked: tuple[str, ...] = ()  # columns with a watermark that reach the operator
    after: tuple[Kind, ...] = ()  # stateful operators that come before it
    row_bytes: int = 100  # of one row of state, as Spark lays it out
    collides: bool = False  # it shares a task with the aggregation before it
    failure: str = ""  # why Spark would end the query in its first batch
    place: Location | None = None  # of the clause that makes it, where it is SQL


@dataclass(frozen=True, slots=True)
class Asked:
    """What else than its input an answer may depend on, as functions."""

    clock: tuple[str, ...] = ()
    chance: tuple[str, ...] = ()
    python: tuple[str, ...] = ()  # of the user's


@dataclass(frozen=True, slots=True)
class Risk:
    """An expression that ends the query for good when a value does not fit."""

    text: str
    instead: str  # what gives NULL for such a value
    place: Location | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a query, from its sources to its result."""

    kind: str  # stream, static, filter, watermark, join, aggregate, …
    text: str
    kept: tuple[Kept, ...] = ()
    inputs: tuple[Step, ...] = ()

    def walk(self) -> Iterator[Step]:
        yield self
        for one in self.inputs:
            yield from one.walk()


@dataclass(frozen=True, slots=True)
class Plan:
    """A query, as Spark would run it in the table's mode."""

    refusals: Mapping[str, str] = field(default_factory=dict)  # mode -> why it is not legal
    kept: tuple[Kept, ...] = ()  # from the sink down
    marks: tuple[Mark, ...] = ()
    delay: int = 0  # how far the query's watermark is behind, if its streams keep step
    policy: Literal["min", "max"] = "min"
    partitions: int = 0  # that state is kept in
    asked: Asked = Asked()
    risks: tuple[Risk, ...] = ()
    unmarked_union: bool = False  # some branches of a union have a watermark, others not
    by_batch: tuple[str, ...] = ()  # pandas functions over groups, which see one batch at a time
    filtered: tuple[str, ...] = ()  # conditions that Spark moved below a watermark
    largest_static: int = 0  # bytes of a bounded table that each batch reads again
    failure: str = ""  # why Spark would end the query in its first batch
    steps: Step | None = None
    shape: Shape | None = None  # what it computes, where that was asked for
    unknown: str = ""  # why the planner could not be asked
