"""What is said of rows by conditions that stand beside each other. Texts only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def either(one: str, other: str) -> str:
    """A column that is made of the one thing or of the other."""
    parts = {*one.split(" | "), *other.split(" | ")}
    return " | ".join(sorted(parts))


def together(filters: tuple[str, ...], more: Sequence[str]) -> tuple[str, ...]:
    """All conditions; that something is not NULL is left out where another one says so, too,
    and what only ends the query."""
    both = dict.fromkeys((*filters, *more))
    return tuple(f for f in both if not _implied(f, both) and "RaiseError" not in f)


def without_implied(filters: tuple[str, ...], compared: Sequence[str]) -> tuple[str, ...]:
    """A join drops rows in which something that it compares is NULL."""
    return tuple(
        f for f in filters
        if not (f.startswith("IsNotNull(") and any(f[10:-1] in text for text in compared))
    )  # fmt: skip


def _implied(condition: str, among: Mapping[str, None]) -> bool:
    if not condition.startswith("IsNotNull("):
        return False
    inner = condition.removeprefix("IsNotNull(")[:-1]
    strict = ("LessThan(", "LessThanOrEqual(", "EqualTo(", "In(", "Not(EqualTo(", "Like(")
    if inner.startswith("<") or inner == "":
        return False
    return any(
        other != condition and other.startswith(strict) and inner in other for other in among
    )
