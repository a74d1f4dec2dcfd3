"""Which values an option takes: functions from a text to what is wrong with it, or None."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Check = Callable[[str], str | None]


def whole_number(text: str) -> str | None:
    """
    >>> whole_number("5"), whole_number("abc")
    (None, 'is no whole number')
    """
    return None if re.fullmatch(r"\d+", text.strip()) else "is no whole number"


def number(text: str) -> str | None:
    return None if re.fullmatch(r"-?\d*\.?\d+", text.strip()) else "is no number"


def boolean(text: str) -> str | None:
    return None if text.strip().lower() in ("true", "false") else "is neither true nor false"


def one_of(*words: str) -> Check:
    """One of some words, in any case."""

    def check(text: str) -> str | None:
        if text.strip().lower() in words:
            return None
        return f"is none of {', '.join(words)}"

    return check


def exactly(*words: str) -> Check:
    """One of some words, as they are written."""

    def check(text: str) -> str | None:
        return None if text.strip() in words else f"is none of {', '.join(words)}"

    return check


def length_of_time(text: str) -> str | None:
    """As Spark's own options take it: `15m`, `10s`, `500ms`; milliseconds without a unit.

    >>> length_of_time("15m"), length_of_time("15 minutes")
    (None, 'is no length of time such as 15m, 10s or 500ms')
    """
    if re.fullmatch(r"\d+(us|ms|s|m|min|h|d)?", text.strip().lower()):
        return None
    return "is no length of time such as 15m, 10s or 500ms"


def addresses(text: str) -> str | None:
    """host:port, host:port"""
    for one in text.split(","):
        host, colon, port = one.strip().rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65_536):
            return f'has "{one.strip()}", which is no host:port'
    return None


def pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as e:
        return f"is no regular expression: {e}"
    return None


def partitions_of_topics(text: str) -> str | None:
    """`{"topic": [0, 1]}`"""
    value = _json(text)
    if isinstance(value, dict) and all(
        isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
        for numbers in value.values()
    ):
        return None
    return 'is not of the form {"topic": [0, 1]}'


def offsets(text: str) -> str | None:
    """`earliest`, `latest`, or `{"topic": {"0": 23, "1": -2}}`"""
    if text.strip().lower() in ("earliest", "latest"):
        return None
    return numbers_of_partitions(text) and (
        'is neither earliest, latest, nor of the form {"topic": {"0": 23, "1": -2}}'
    )


def numbers_of_partitions(text: str) -> str | None:
    """`{"topic": {"0": 1700000000000}}`"""
    value = _json(text)
    if isinstance(value, dict) and all(
        isinstance(partitions, dict)
        and all(p.isdigit() and type(n) is int for p, n in partitions.items())
        for partitions in value.values()
    ):
        return None
    return 'is not of the form {"topic": {"0": 23}}'


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
