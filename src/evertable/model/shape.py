"""What a query computes, in a form that does not change with the way it is written.

Names of views, aliases, the order of conditions, SQL or DataFrame: none of it is here. Each column
is told by the columns of the sources that it is made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

OperatorKind = Literal[
    "aggregate", "session", "dedup", "dedup within watermark", "join", "limit", "python"
]


@dataclass(frozen=True, slots=True)
class Term:
    """One expression: what it is made from, and the type of what it gives."""

    text: str
    type: str = ""
    name: str = ""  # what it is called where it comes out


@dataclass(frozen=True, slots=True)
class Branch:
    """One way that rows take into an operator, or out of the query; a union has several.

    `reads` are uses of streams, and `#1` for the rows of operator 1. Watermarks stand apart, so
    that `shape` says nothing of delays.
    """

    reads: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    shape: str = ""
    keys: tuple[Term, ...] = ()
    values: tuple[Term, ...] = ()
    marks: tuple[tuple[str, int], ...] = ()  # column, milliseconds


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator that keeps state, by the number that Spark's checkpoint knows it by."""

    id: int
    kind: OperatorKind
    sides: tuple[tuple[Branch, ...], ...]  # two of a join
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shape:
    """A whole query."""

    operators: tuple[Operator, ...] = ()
    result: tuple[Branch, ...] = ()  # its values are the columns of the result
    leaves: tuple[tuple[str, str], ...] = ()  # sources; of those without names, what they read


@dataclass(frozen=True, slots=True)
class Restart:
    """What Spark's own checks say when a query is planned on the checkpoint of another."""

    error: str = ""  # empty where they pass
