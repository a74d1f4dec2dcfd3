"""Rows to compare: in any order, with a difference that names rows and columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evertable.testing.times import Day
from evertable.testing.values import readable

_SHOWN = 20  # differences


class Rows(list[dict[str, Any]]):
    """The rows of a table. Equal to others that are the same rows, in whatever order."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], day: Day, what: str = "") -> None:
        super().__init__(readable(dict(row), day) for row in rows)
        self.sort(key=_sortable)
        self.day = day
        self.what = what

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and not list(differences(self, self._like(other)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def _like(self, other: list[Any]) -> list[dict[str, Any]]:
        return [readable(dict(row), self.day) for row in other]

    def explained(self, other: list[Any]) -> list[str]:
        """What differs, a line each."""
        return list(differences(self, self._like(other)))


def differences(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> Iterator[str]:
    """One line a row that differs: which row, which columns.

    >>> list(differences([{"ad": "a", "n": 2}], [{"ad": "a", "n": 3}]))
    ['row ad=a: n is 2, not 3']
    """
    extra, missing = list(found), []
    for row in wanted:
        if row in extra:
            extra.remove(row)
        else:
            missing.append(row)
    lines = []
    for row in missing:
        near = max(extra, key=lambda other: _alike(other, row), default=None)
        if near is None or not _alike(near, row) or set(near) != set(row):
            lines.append(f"missing: {_text(row)}")
            continue
        extra.remove(near)
        same = {k: v for k, v in row.items() if near[k] == v}
        other = [f"{k} is {near[k]!r}, not {v!r}" for k, v in row.items() if near[k] != v]
        lines.append(f"row {_text(same)}: {'; '.join(other)}")
    lines += [f"too much: {_text(row)}" for row in extra]
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"and {len(lines) - _SHOWN} more"


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    return sum(name in one and one[name] == value for name, value in other.items())


def _text(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in row.items())


def _sortable(row: Mapping[str, Any]) -> str:
    return json.dumps(list(row.values()), default=str)
