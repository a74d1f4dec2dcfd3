"""Whether a sink and a checkpoint tell the same story. Pure: values in, a finding out."""

from __future__ import annotations

from collections.abc import Callable

from evertable.errors import Finding
from evertable.location import Location
from evertable.model.ledger import LedgerEntry

Digest = Callable[[int], str | None]


def judge(
    table: str,
    place: Location | None,
    entry: LedgerEntry | None,
    query_id: str,
    last_offset: int,
    last_commit: int,
    digest_of: Digest,
) -> Finding | None:
    """Why the table may not go on; None where sink and checkpoint fit.

    They fit when the sink is exactly at Spark's last commit, or one batch ahead of it with that
    very batch begun in the checkpoint: then it will be computed again and not written again.
    An entry without a query id or a digest says nothing of them.
    """
    if entry is not None and entry.query_id and entry.query_id != query_id:
        return Finding(
            "TARGET_OWNED",
            f'the rows of table "{table}" belong to another query',
            place,
            detail=f"they were written by query {entry.query_id}, the checkpoint is of {query_id}: "
            "it was lost or replaced",
            hint=f"restore the checkpoint, or `evertable drop {table}` and start over",
        )
    if last_offset > last_commit + 1:
        return Finding(
            "CHECKPOINT_DAMAGED",
            f'the checkpoint of table "{table}" has lost its commits',
            place,
            detail=f"it has begun batch {last_offset} and finished batch {last_commit}: Spark "
            "would go on after the last one, and the rows between would be missing",
            hint=f"restore the whole checkpoint, or `evertable drop {table}` and start over",
        )
    newest = -1 if entry is None else entry.batch
    if newest < last_commit:
        return _behind(table, place, newest, last_commit)
    if newest > last_offset or newest > last_commit + 1:
        return _ahead(
            table, place, f"it has batch {newest}, the checkpoint only knows {last_offset}"
        )
    if entry is not None and entry.digest:
        known = digest_of(entry.batch)
        if known is not None and known != entry.digest:
            return _ahead(
                table, place, f"batch {entry.batch} of the checkpoint reads other rows than it did"
            )
    return None


def _behind(table: str, place: Location | None, newest: int, last_commit: int) -> Finding:
    missing = (
        f"batch {last_commit} is"
        if newest + 1 == last_commit
        else f"batches {newest + 1} to {last_commit} are"
    )
    return Finding(
        "SINK_BEHIND",
        f'the sink of table "{table}" has lost batches that Spark counts as done',
        place,
        detail=f"{missing} missing: rows or ledger were restored to an older state, or deleted",
        hint="restore rows and checkpoint to the same moment, or "
        f"`evertable drop {table}` and start over",
    )


def _ahead(table: str, place: Location | None, why: str) -> Finding:
    return Finding(
        "SINK_AHEAD",
        f'the sink of table "{table}" is ahead of its checkpoint',
        place,
        detail=f"{why}: the checkpoint was restored to an older state. "
        "Going on would leave out the rows of those batches, in silence",
        hint="restore rows and checkpoint to the same moment, or "
        f"`evertable drop {table}` and start over",
    )
