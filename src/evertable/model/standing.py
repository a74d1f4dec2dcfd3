"""Where a checkpoint stands, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Standing:
    """What a checkpoint says of itself, without Spark."""

    query_id: str = ""
    last_offset: int = -1  # the newest batch that was begun
    last_commit: int = -1  # the newest batch that was finished
    named: bool | None = None  # its sources have names
    offsets: Mapping[str, str] = field(default_factory=dict)  # of the newest batch; name or place
    moved: frozenset[str] = frozenset()  # sources of which the newest batch read something
    watermark: int = 0  # milliseconds, of the next batch
    confs: Mapping[str, str] = field(default_factory=dict)  # that it has pinned
    keeps_state: bool = False

    @property
    def next_batch(self) -> int:
        return self.last_commit + 1 if self.last_offset == self.last_commit else self.last_offset

    @property
    def begun(self) -> bool:
        """Whether a batch was begun that is not finished: it will run with the new query."""
        return self.last_offset > self.last_commit
