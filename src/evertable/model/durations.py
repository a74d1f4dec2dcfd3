"""Lengths of time as people write them: `10 minutes`, `1 hour 30 minutes`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

_MILLIS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_PART = re.compile(r"(\d+)\s+(millisecond|second|minute|hour|day|week)s?", re.IGNORECASE)


def millis(text: str) -> int:
    """The length in milliseconds; ValueError where the text is no length of time.

    >>> millis("1 hour 30 minutes")
    5400000
    """
    rest = _PART.sub("", text).strip(" ,")
    parts = _PART.findall(text)
    if rest or not parts:
        raise ValueError(f'"{text}" is not a length of time such as "10 minutes"')
    return sum(int(n) * _MILLIS[unit.lower()] for n, unit in parts)


def short(millis: int) -> str:
    """A length of time as people say it.

    >>> [short(n) for n in (0, 250, 90_000, 3_600_000, 93_600_000)]
    ['0s', '250ms', '1m30s', '1h', '1d2h']
    """
    if 0 < millis < 1000:
        return f"{millis}ms"
    parts = []
    rest = millis // 1000
    for unit, one in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if rest >= one:
            parts.append(f"{rest // one}{unit}")
            rest %= one
    return "".join(parts[:2]) or "0s"


def _checked(text: str) -> str:
    millis(text)
    return text


Duration = Annotated[
    str,
    AfterValidator(_checked),
    WithJsonSchema({"type": "string", "examples": ["10 minutes", "1 hour 30 minutes"]}),
]
