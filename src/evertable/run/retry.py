"""Whether a table that failed is tried again, and when. Pure."""

from __future__ import annotations

from evertable.errors import Finding

# Somebody else's trouble, which may pass.
_PASSING = frozenset({"SINK_UNREACHABLE", "SINK_BUSY", "SINK_FULL", "SINK_LOCKED", "STAGING_LOST"})
# Not a failure: the same batch is written in another way.
_AT_ONCE = frozenset({"BATCH_TO_STAGE"})

LONGEST = 60.0  # seconds between two tries
MOST = 10  # tries in a row of a table that is meant to end by itself


def pause(finding: Finding, failures: int, *, ends: bool) -> float | None:
    """Seconds until the next try after so many failures in a row; None to give up.

    >>> down = Finding("SINK_UNREACHABLE", "")
    >>> [pause(down, n, ends=False) for n in (1, 2, 3, 7, 1000)]
    [1.0, 2.0, 4.0, 60.0, 60.0]
    >>> pause(down, 10, ends=True), pause(Finding("KEY_TWICE", ""), 1, ends=False)
    (None, None)
    """
    if finding.code in _AT_ONCE:
        return 0.0
    if finding.code not in _PASSING or (ends and failures >= MOST):
        return None
    return min(LONGEST, 2.0 ** min(failures - 1, 10))
