"""The one seam between a table's batches and any store.

The framework owns the query id, recognising replays, and when a batch is written. A connector owns
one thing: data and ledger entry in one commit, refused when somebody newer holds the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from evertable.errors import Finding
from evertable.location import Location
from evertable.model.capabilities import SinkCapabilities
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import OutputMode, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Held:
    """What the ledger of a target says, for people."""

    target: str
    query_id: str
    batch: int | None = None
    digest: str = ""
    owner: str = ""  # pipeline/table, where the ledger knows
    epoch: int | None = None
    written_at: str = ""


class Session(Protocol):
    """One query's claim on one target."""

    last: LedgerEntry | None  # the newest batch the target has, read when the claim was made

    def prepare(self, schema: StructType, mode: OutputMode, keys: Sequence[str]) -> None:
        """Make the target, or see that the one that is there fits. Before the first batch."""

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        """Data and entry in one commit, as the last step; how many rows, where that is known.

        `written` is called between the data and the commit.
        """

    def maintain(self) -> Iterable[Finding]:
        """Clean up, after a batch; what somebody should know."""

    def close(self) -> None: ...


class Sink(Protocol):
    """What a connector is."""

    @property
    def capabilities(self) -> SinkCapabilities: ...

    def open(self, table: Table, query_id: str) -> Session:
        """Claim the target for this query: whoever held it before is fenced off."""


class WithoutLedger:
    """What a session does around its writes where the target keeps no ledger."""

    last: LedgerEntry | None = None

    def prepare(self, schema: StructType, mode: OutputMode, keys: Sequence[str]) -> None:
        pass

    def maintain(self) -> Iterable[Finding]:
        return ()

    def close(self) -> None:
        pass


def owned(
    table: str, place: Location | None, before: str, owner: str | None, query_id: str
) -> Finding:
    """The target belongs to query `before`, of pipeline/table `owner` where that is known."""
    named = f'{before} of "{owner}"' if owner else before
    return Finding(
        "TARGET_OWNED",
        f'the rows of table "{table}" belong to another query',
        place,
        detail=f"its ledger is of query {named}, the checkpoint is of {query_id}: "
        "the checkpoint was lost or replaced, or another table writes there",
        hint=f"restore the checkpoint, or `evertable drop {table}` and start over; "
        f"`evertable sink release {table}` gives up the rows that are there",
    )


def fenced(table: str, place: Location | None) -> Finding:
    """A newer run has claimed the target."""
    return Finding(
        "SINK_FENCED",
        f'table "{table}" was taken over by a newer run',
        place,
        detail="this run may not write to it any more; nothing of the batch was kept",
    )


def gone(table: str, place: Location | None, what: str) -> Finding:
    """The target is not there any more."""
    return Finding(
        "TARGET_GONE",
        f'{what} of table "{table}" is gone',
        place,
        detail="it was removed after batches had been written to it; nothing more was written",
        hint=f"restore it as it was, or `evertable drop {table}` and start over",
    )


def key_twice(table: str, place: Location | None, key: Sequence[str]) -> Finding:
    """One row a key can be kept, and a batch brought two."""
    return Finding(
        "KEY_TWICE",
        f'table "{table}" got one key twice in one batch',
        place,
        detail=f"key ({', '.join(key)}): one row a key can be kept",
        hint="say which one stays: `order_by: column`; or name a key that is unique",
    )


def key_text(keys: Sequence[str], table: Table) -> str:
    """By what rows are kept; removals are remembered by their versions too."""
    text = ", ".join(keys)
    return f"{text} by {table.order_by}" if table.order_by and table.delete_when else text


def kept_otherwise(
    table: str, place: Location | None, before: tuple[str | None, str | None], mode: str, key: str
) -> Finding | None:
    """Another mode or key would leave old rows behind; complete mode replaces them all."""
    as_was = before[0] == mode and sorted((before[1] or "").split(", ")) == sorted(key.split(", "))
    if not before[0] or as_was or mode == "complete":
        return None
    return Finding(
        "SINK_SCHEMA",
        f'table "{table}" is kept in another way than it now would be',
        place,
        detail=f"kept: {before[0]} mode, key ({before[1]}); now: {mode}, ({key})",
        hint=f"take the edit back, or `evertable drop {table}` and start over",
    )
