"""An edit of one table: what it was, what it is to be, and where its checkpoint stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from evertable.model.shape import Branch, Operator, Restart, Term
from evertable.model.standing import Standing
from evertable.plan.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Edit:
    """What every rule looks at."""

    old: Manifest
    new: Manifest
    standing: Standing
    restart: Restart

    def pairs(self) -> Iterator[Pair]:
        """The operators that are there before and after, by their numbers."""
        after = {o.id: o for o in self.new.shape.operators} if self.new.shape else {}
        for before in self.old.shape.operators if self.old.shape else ():
            if before.id in after and after[before.id].kind == before.kind:
                yield Pair(before, after[before.id])

    @property
    def keeps_state(self) -> bool:
        return bool(self.new.shape and self.new.shape.operators)

    @property
    def kept_state(self) -> bool:
        return bool(self.old.shape and self.old.shape.operators)

    def added(self) -> frozenset[str]:
        """Uses of streams that the checkpoint does not know."""
        return frozenset(s.use for s in self.new.sources) - {s.use for s in self.old.sources}

    def removed(self) -> frozenset[str]:
        return frozenset(s.use for s in self.old.sources) - {s.use for s in self.new.sources}


class Pair(NamedTuple):
    """One operator, before and after."""

    before: Operator
    after: Operator

    def branches(self) -> Iterator[tuple[Branch | None, Branch | None]]:
        """The ways into it, before and after, by what they read; of each side."""
        for olds, news in zip(self.before.sides, self.after.sides, strict=False):
            yield from matched(olds, news)


def matched(
    olds: tuple[Branch, ...], news: tuple[Branch, ...]
) -> Iterator[tuple[Branch | None, Branch | None]]:
    """Ways that read the same belong together; where one only is left on each side, those do."""
    rest = list(news)
    alone = []
    for old in olds:
        same = [new for new in rest if new.reads == old.reads]
        best = next((new for new in same if new == old), same[0] if same else None)
        if best is None:
            alone.append(old)
        else:
            rest.remove(best)
            yield old, best
    while alone and rest and len(alone) == len(rest):
        yield alone.pop(0), rest.pop(0)
    for old in alone:
        yield old, None
    for new in rest:
        yield None, new


def masked(text: str) -> str:
    """The text without the prints of the user's code in it, and where statics are read from."""
    return re.sub(r"(py#|static@)\w+", r"\1", text)


def shown(term: Term) -> str:
    """An expression as people would read it."""
    return readable(term.text)


def readable(text: str) -> str:
    """A canonical text with less in it: no types, windows in minutes.

    >>> readable("window(clicks.at:timestamp,size=600000000,slide=600000000,at=0)")
    "window(at, '10 minutes')"
    """

    def window(match: re.Match[str]) -> str:
        parts = [_span(match[2])]
        if match[3] != match[2] or match[4] != "0":
            parts.append(_span(match[3]))
        if match[4] not in ("0", f"-{int(match[2]) - int(match[3])}"):
            parts.append(_span(match[4]))
        return f"window({match[1]}, {', '.join(parts)})"

    text = re.sub(r"\b(window)\(", r"\1(", text)
    text = re.sub(r":(struct|array|map)<[^ ]*>", "", text)
    text = re.sub(r"(?<=[\w)]):[a-z_]+(\(\d+,\d+\))?(@\w+)?", "", text)
    text = re.sub(r"(?<![\w.])[A-Za-z]\w*\.(?=[A-Za-z_])", "", text)
    text = re.sub(r"window\(([^()]*),size=(\d+),slide=(\d+),at=(-?\d+)\)", window, text)
    return re.sub(r"py#\w+", "python", text)


def _span(micros: str) -> str:
    number = abs(int(micros))
    for unit, one in (
        ("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000),
        ("second", 1_000_000),
    ):  # fmt: skip
        if number % one == 0:
            return f"'{number // one} {unit}{'' if number == one else 's'}'"
    return f"'{number} microseconds'"
