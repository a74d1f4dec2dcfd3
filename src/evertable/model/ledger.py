"""What a sink commits together with a batch's data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One batch of one query.

    The digest is of the batch's end offsets: after a checkpoint was lost or restored, the same
    batch number can mean other rows, and a number alone would let them be skipped.
    """

    query_id: str
    batch: int
    digest: str
