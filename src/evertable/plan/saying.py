"""What rules about state share: words, comparisons, and how a change is said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from evertable.model.shape import Branch, OperatorKind, Term
from evertable.plan.changes import Change, Verdict
from evertable.plan.edit import Edit, Pair, readable, shown

WORDS = {
    "aggregate": "aggregation", "session": "session window", "dedup": "deduplication",
    "dedup within watermark": "deduplication", "join": "join of streams", "limit": "limit",
    "python": "state of your code",
}  # fmt: skip
GROUPS = ("aggregate", "session")


def ways_of(edit: Edit) -> Iterator[tuple[Pair, Branch, Branch]]:
    for pair in edit.pairs():
        for old, new in pair.branches():
            if old is not None and new is not None:
                yield pair, old, new


def refused_or(
    edit: Edit, code: str, message: str, before: str, after: str, detail: str,
    silent: Verdict = "corrupts",
) -> Change:  # fmt: skip
    """What Spark refuses, or else accepts without a word."""
    if edit.restart.error:
        said = "Spark refuses it: the checkpoint has state of other types"
        return Change(code, "fails", message, before, after, said, edit.restart.error)
    return Change(code, silent, message, before, after, detail)


def same_terms(olds: Sequence[Term], news: Sequence[Term]) -> bool:
    return [(t.text, t.type) for t in olds] == [(t.text, t.type) for t in news]


def texts(terms: Sequence[Term]) -> list[str]:
    return [term.text for term in terms]


def shown_all(terms: Sequence[Term]) -> str:
    return ", ".join(shown(term) for term in terms)


def is_window(text: str) -> bool:
    return text.startswith(("window(", "session_window("))


def windowed(text: str) -> str:
    """The column that windows are of."""
    return text.partition("(")[2].partition(",")[0]


def about_keys_only(old: Branch, new: Branch) -> bool:
    """Whether conditions were only added, and they look at nothing but the keys of groups."""
    if not set(old.filters) < set(new.filters):
        return False
    columns = {c for text in set(new.filters) - set(old.filters) for c in columns_in(text)}
    keys = {k.text.partition(":")[0] for k in new.keys}
    return bool(columns) and columns <= keys


def narrower(before: str, after: str) -> bool:
    """Whether ranges of time have become shorter, and nothing else is another."""
    olds, news = before.split(" AND "), after.split(" AND ")
    if [re.sub(r"-?\d+:interval", "", o) for o in olds] != [
        re.sub(r"-?\d+:interval", "", n) for n in news
    ]:
        return False
    for old, new in zip(olds, news, strict=True):
        numbers = [[int(n) for n in re.findall(r"(-?\d+):interval", t)] for t in (old, new)]
        if len(numbers[0]) > 1 or len(numbers[0]) != len(numbers[1]):
            return False
        lower = re.match(r"LessThan(OrEqual)?\(TimestampAddInterval", new) is not None
        for was, now in zip(*numbers, strict=True):
            if (now < was) if lower else (now > was):
                return False
    return True


def columns_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])([A-Za-z0-9_]+\.[A-Za-z_]\w*)(?=:)", text))


def is_bounded(pair: Pair, *branches: Branch) -> bool:
    """Whether a watermark does anything to an operator."""
    if pair.after.kind in ("join", "session", "dedup within watermark"):
        return True
    if pair.after.kind == "python":
        told = " ".join(pair.after.settings.values())
        return "EventTime" in told
    if pair.after.kind == "limit":
        return False
    return any(
        key.text.startswith("~") or column in key.text
        for branch in branches for key in branch.keys for column, _ in branch.marks
    )  # fmt: skip


def marks_shown(branch: Branch) -> str:
    return ", ".join(f"{readable(column)} - {millis / 1000:g}s" for column, millis in branch.marks)


def all_marks(edit: Edit) -> Iterator[tuple[str, int]]:
    for operator in edit.old.shape.operators if edit.old.shape else ():
        for side in operator.sides:
            for branch in side:
                yield from branch.marks


def listed(kinds: Iterable[OperatorKind]) -> str:
    names = [WORDS[k] for k in kinds]
    return ", ".join(names) or "no state"
