"""Whether there are enough task slots for tables that hold some as long as they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evertable.errors import Finding
from evertable.model.pipeline import Table


@dataclass(frozen=True)
class Need:
    """A table, and how many tasks it runs at once at the least."""

    table: Table
    slots: int


def slots_of(table: Table, partitions: Iterable[int | None], shuffles: int, width: int) -> int:
    """The slots of one table: every partition of its sources, and of its shuffles in real time.

    Between batches a table needs one; with a continuous or a real-time trigger all of its tasks
    run for as long as it does. A source that makes as many partitions as there are slots counts 1.
    """
    if not table.trigger.holds_slots:
        return 1
    return sum(number or 1 for number in partitions) + shuffles * width


def too_few(needs: Sequence[Need], slots: int) -> Finding | None:
    """Spark would read the first partitions only, and say nothing of the others."""
    held = [need for need in needs if need.table.trigger.holds_slots]
    others = len(needs) > len(held)
    wanted = sum(need.slots for need in held) + others
    if not held or wanted <= slots:
        return None
    first = max(held, key=lambda need: need.slots)
    parts = [f'table "{need.table.name}" holds {need.slots}' for need in held]
    if others:
        parts.append("the other tables need 1")
    kind = first.table.trigger.kind.replace("_", "-")
    return Finding(
        "SLOTS_TOO_FEW",
        f'table "{first.table.name}" needs {wanted} task slots for its {kind} trigger, and there '
        f"{'is' if slots == 1 else 'are'} {slots}",
        first.table.location,
        detail=f"{'; '.join(parts)}. Each partition keeps a slot as long as the table runs; "
        "those without one would never be read, with no error",
        hint=f'spark: {{master: "local[{wanted}]"}}, or --master "local[{wanted}]"',
    )
