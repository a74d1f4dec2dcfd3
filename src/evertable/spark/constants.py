"""What constants, casts and lists of values say. Texts only."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime

_UNITS = {
    "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000,
    "millisecond": 1_000, "microsecond": 1,
}  # fmt: skip


def span(text: str) -> str:
    """`5 minutes` as microseconds; what has months in it as it is."""
    parts = re.findall(r"(-?\d+(?:\.\d+)?) (\w+?)s?\b", text)
    if not parts or any(unit not in _UNITS for _, unit in parts):
        return text
    return str(round(sum(float(number) * _UNITS[unit] for number, unit in parts)))


def is_now(value: str, kind: str) -> bool:
    """Whether a constant is the moment at which Spark planned the query."""
    if not kind.startswith(("date", "timestamp")):
        return False
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return False
    if kind.startswith("timestamp") and moment.microsecond % 1_000:
        return True  # made of a clock's moment, however far from it
    away = moment.replace(tzinfo=UTC).timestamp() - time.time()
    return abs(away) < (400 if kind == "date" else 2) * 86_400


def zoned(source: str, target: str) -> bool:
    """Whether a cast between these depends on the time zone."""
    if {source, target} <= {"date", "string"} or (
        "timestamp_ntz" in (source, target)
        and ("string" in (source, target) or "date" in (source, target))
    ):
        return False
    numbers = ("bigint", "int", "double", "float", "smallint", "tinyint", "decimal")
    return not source.startswith(numbers) and not target.startswith(numbers)


def one_of(text: str, values: Sequence[str]) -> str:
    found = sorted(set(values))
    if len(found) == 1:
        return f"EqualTo({','.join(sorted([text, found[0]]))})"
    return f"In({text};{','.join(found)})"


def literal_and_other(inner: str) -> tuple[str, str] | None:
    """`5:int,s.k:int` of an equality: the constant, and what it is compared with."""
    match = re.fullmatch(r"([^(),]*:(?:int|bigint|string|double|date|boolean)),(.+)", inner)
    if match and "." not in match[1].partition(":")[0]:
        return match[1], match[2]
    match = re.fullmatch(r"(.+),([^(),.]*:(?:int|bigint|string|double|date|boolean))", inner)
    return (match[2], match[1]) if match else None
