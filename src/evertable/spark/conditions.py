"""What is said of rows by conditions that stand beside each other. Texts only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


def either(one: str, other: str) -> str:
    """A column that is made of the one thing or of the other."""
    parts = {*one.split(" | "), *other.split(" | ")}
    return " | ".join(sorted(parts))


def together(filters: tuple[str, ...], more: Sequence[str]) -> tuple[str, ...]:
    """All conditions; that something is not NULL is left out where another one says so, too,
    and what only ends the query."""
    both = dict.fromkeys((*filters, *more))
    return tuple(f for f in both if not _implied(f, both) and not _ends_the_query(f))


def without_implied(filters: tuple[str, ...], compared: Sequence[str]) -> tuple[str, ...]:
    """A join drops rows in which something that it compares is NULL."""
    needed = {part for text in compared for part in (text, *_needed(text))}
    return tuple(f for f in filters if not (f.startswith("IsNotNull(") and f[10:-1] in needed))


def _implied(condition: str, among: Mapping[str, None]) -> bool:
    """Whether another condition is not true where this column is NULL."""
    if not condition.startswith("IsNotNull("):
        return False
    others = (other for other in among if other != condition)
    return any(condition[10:-1] in _needed(other) for other in others)


def _ends_the_query(condition: str) -> bool:
    """`CASE WHEN bad THEN raise_error(…) ELSE true END`, which lets every row pass."""
    whole = condition.startswith("Case(") and condition.endswith(",true:boolean)")
    return whole and "RaiseError(" in condition


# What gives NULL, or not true, when something in it is NULL.
_STRICT = {
    "LessThan", "LessThanOrEqual", "EqualTo", "In", "Not", "Like", "StartsWith", "EndsWith",
    "Contains", "TimestampAddInterval", "Add", "Subtract", "Multiply", "Cast",
    "PreciseTimestampConversion", "GetStructField", "DateAdd", "DateSub",
}  # fmt: skip


def _needed(text: str) -> set[str]:
    """What must not be NULL for an expression to be true, or to have a value."""
    head = re.match(r"(\w+)(\[[^(]*\])?\(", text)
    if not head or head[1] not in _STRICT or not text.endswith(")"):
        return set()
    found: set[str] = set()
    for part in _parts(text[head.end() : -1]):
        inner = part.rpartition(" as ")[0] if head[1] == "Cast" else part
        found |= {inner, *_needed(inner)}
    return found


def _parts(text: str) -> list[str]:
    """What stands between the commas and semicolons of the outermost brackets."""
    found, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "([<") - (sign in ")]>")
        if sign in ",;" and not depth:
            found.append(text[begin:at])
            begin = at + 1
    return [*found, text[begin:]]
