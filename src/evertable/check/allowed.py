"""Findings that a comment beside a definition silences: `# evertable: allow CODE reason`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evertable.errors import Finding
from evertable.location import Location
from evertable.model.pipeline import Pipeline

_COMMENT = re.compile(
    r"(?:#|--)\s*evertable:\s*allow\b[ \t]*(?P<code>\S*)[ \t]*(?P<reason>.*?)\s*$"
)
_NOTHING_BUT_COMMENT = re.compile(r"\s*#")


@dataclass(frozen=True)
class Allow:
    """One such comment, and the definition that it stands beside."""

    code: str
    reason: str
    place: Location
    owner: str  # the name of a stream, static, view or table


def files_of(pipeline: Pipeline) -> set[str]:
    """The files that a pipeline is written in."""
    return {place.file for place, _ in _owners(pipeline)}


def allows_in(pipeline: Pipeline, texts: Mapping[str, str]) -> list[Allow]:
    """Every such comment in the files of a pipeline."""
    found: list[Allow] = []
    owners = list(_owners(pipeline))
    for file, text in texts.items():
        lines = text.splitlines()
        begins = {place.line: name for place, name in owners if place.file == file}
        for number, line in enumerate(lines, start=1):
            comment = _COMMENT.search(line)
            owner = _owner(begins, lines, number)
            if comment and owner:
                place = Location(file, number)
                found.append(Allow(comment["code"], comment["reason"], place, owner))
    return found


def silence(
    findings: Sequence[tuple[str, Finding]], allows: Sequence[Allow], pipeline: Pipeline
) -> list[Finding]:
    """What is left of (name of its definition, finding), and what is to be said of the comments."""
    used: set[Allow] = set()
    left: list[Finding] = []
    for name, finding in findings:
        names = {name, *_containing(pipeline, finding.place)}
        matching = [a for a in allows if a.code == finding.code and a.reason and a.owner in names]
        if finding.severity == "error" or not matching:
            left.append(finding)
        else:
            used.update(matching)
    errors = {finding.code for _, finding in findings if finding.severity == "error"}
    return left + [_unused(allow, errors) for allow in allows if allow not in used]


def _unused(allow: Allow, errors: set[str]) -> Finding:
    if not allow.reason:
        why, hint = "gives no reason", "# evertable: allow CODE because …"
    elif allow.code in errors:
        why, hint = "names an error, which cannot be silenced", "mend it, and take the comment out"
    else:
        why, hint = "silences nothing", "take it out, or correct the code"
    return Finding(
        "ALLOW_UNUSED",
        f'the comment that allows {allow.code or "nothing"} beside "{allow.owner}" {why}',
        allow.place,
        hint=hint,
        severity="note",
    )


def _owners(pipeline: Pipeline) -> Iterator[tuple[Location, str]]:
    """Where each definition stands; a query may stand in a file of its own."""
    for entry in (*pipeline.inputs(), *pipeline.tables):
        query = getattr(entry, "query", None)
        place = entry.location
        if place:
            yield place, entry.name
        if query and query.location and (place is None or query.location.file != place.file):
            yield query.location, entry.name


def _owner(begins: Mapping[int, str], lines: Sequence[str], number: int) -> str | None:
    """The definition that begins right below a block of comments, or else the one around it."""
    if _NOTHING_BUT_COMMENT.match(lines[number - 1]):
        below = number
        while below < len(lines) and _NOTHING_BUT_COMMENT.match(lines[below - 1]):
            below += 1
        if below in begins:
            return begins[below]
    above = [line for line in begins if line <= number]
    return begins[max(above)] if above else None


def _containing(pipeline: Pipeline, place: Location | None) -> set[str]:
    """The definition that a place is in."""
    if place is None:
        return set()
    inside = [(o.line, name) for o, name in _owners(pipeline) if o.file == place.file]
    above = [one for one in inside if one[0] <= place.line]
    return {max(above)[1]} if above else set()
