"""Sources known by name only: catalog tables, data sources of the user's, and any other format."""

from __future__ import annotations

from evertable.model.capabilities import MISPLACED, SourceCapabilities

TABLE = SourceCapabilities(
    formats=("table",),
    options=frozenset({"table"}),
    required=("table",),
    misplaced=MISPLACED,
    bounded=True,
    any_option="table",
)
PYTHON = SourceCapabilities(
    formats=("python",),
    options=frozenset({"class"}),
    required=("class",),
    misplaced=MISPLACED,
    takes_schema=True,
    bounded=True,
    any_option="class",
)

SOURCES = (TABLE, PYTHON)


def stranger(format: str) -> SourceCapabilities:
    """What can be said of a format that Spark may know and we do not."""
    return SourceCapabilities(
        formats=(format,),
        options=frozenset(),
        misplaced=MISPLACED,
        takes_schema=True,
        bounded=True,
        any_option="*",
    )
