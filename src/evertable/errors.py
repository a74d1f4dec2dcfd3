"""Every error a user can meet, and the one value all of them are made of.

EvertableError                one or more findings, and the exit code that goes with them
├── DefinitionError     (2)   the pipeline or the command line cannot be understood
├── Refused             (1)   it is understood, and the answer is no
│   └── TableFailed     (1)   a table stopped with an error while it ran
├── AnswerNeeded        (3)   a question has to be answered and nobody can be asked
└── NotReady            (4)   the machine is not ready: Java, ports, a checkpoint in use
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from evertable.location import Location

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say about a pipeline: what, where, why and what to do."""

    code: str
    message: str
    place: Location | None = None
    detail: str = ""
    hint: str = ""
    spark: str = ""
    severity: Severity = "error"

    def at(self, place: Location | None) -> Finding:
        """The same finding, with a place if it has none yet."""
        return self if self.place or place is None else replace(self, place=place)

    def __str__(self) -> str:
        place = f" {self.place}" if self.place else ""
        return f"{self.code}{place}: {self.message}"


class EvertableError(Exception):
    """The root: carries findings, never a bare text."""

    exit_code = 1

    def __init__(self, *findings: Finding) -> None:
        if not findings:
            raise ValueError("an EvertableError needs at least one finding")
        super().__init__("\n".join(str(f) for f in findings))
        self.findings = findings

    @classmethod
    def of(
        cls,
        code: str,
        message: str,
        *,
        place: Location | None = None,
        detail: str = "",
        hint: str = "",
        spark: str = "",
    ) -> EvertableError:
        return cls(Finding(code, message, place, detail, hint, spark))


class DefinitionError(EvertableError):
    """The pipeline or the command line cannot be understood."""

    exit_code = 2


class Refused(EvertableError):
    """It is understood, and the answer is no."""

    exit_code = 1


class TableFailed(Refused):
    """A table stopped with an error while it ran."""


class AnswerNeeded(EvertableError):
    """A question has to be answered and nobody can be asked."""

    exit_code = 3


class NotReady(EvertableError):
    """The machine is not ready."""

    exit_code = 4


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Only those findings that forbid going on."""
    return tuple(f for f in findings if f.severity == "error")
