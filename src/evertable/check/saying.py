"""How a rule about a table's plan says what it found."""

from __future__ import annotations

from evertable.check.foreseen import Foreseen
from evertable.errors import Finding, Severity
from evertable.location import Location


def say(
    seen: Foreseen,
    code: str,
    message: str,
    severity: Severity = "warning",
    place: Location | None = None,
    *,
    detail: str,
    hint: str,
) -> Finding:
    """A finding about a table; it stands at its query where no place is given."""
    table = seen.table
    at = place or table.query.location or table.location
    return Finding(code, f'table "{table.name}" {message}', at, detail, hint, severity=severity)
