"""Names of streams, statics, views and tables, and the nearest known one to a misspelt one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

PATTERN = r"^[A-Za-z][A-Za-z0-9_]*$"


def _checked(name: str) -> str:
    if not re.match(PATTERN, name):
        raise ValueError(f'"{name}" is no name: letters, digits and _, a letter first')
    return name


Name = Annotated[str, AfterValidator(_checked), WithJsonSchema({"type": "string"})]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, or None where none is near.

    >>> nearest("startingOffets", ["startingOffsets", "subscribe"])
    'startingOffsets'
    """
    by_lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if found:
        return by_lower[found[0]]
    # `group.id` for `kafka.group.id`: the right name with its first part left out
    tails = [k for low, k in by_lower.items() if low.endswith("." + name.lower())]
    return tails[0] if tails else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint in words; empty where there is nothing to suggest."""
    near = nearest(name, known)
    return f'did you mean "{near}"?' if near else ""
