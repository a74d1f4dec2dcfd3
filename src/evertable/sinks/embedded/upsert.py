"""Rows that replace those with their key, inside a transaction that is open."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evertable.errors import Refused
from evertable.model.pipeline import Table
from evertable.sinks.embedded.columns import Column, quoted, rows_of
from evertable.sinks.seam import key_twice

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = "temp._evertable_batch"
_GONE = "_evertable_deleted"  # keys that were removed, and by which version
_FLAG = quoted(_GONE)

Values = list[Sequence[object]]


def winners(
    order: pa.ChunkedArray, deleted: Sequence[bool], keys: list[tuple[object, ...]]
) -> list[int]:
    """The row of each key that stays: the one with the greatest order, of equals the removal, else
    the later one. NULL is older than everything."""
    import pyarrow.compute as pc

    ranks = pc.fill_null(pc.if_else(order.is_null(), 0, pc.rank(order, tiebreaker="dense")), 0)
    best: dict[tuple[object, ...], tuple[int, bool, int]] = {}
    for row, (key, rank) in enumerate(zip(keys, ranks.to_pylist(), strict=True)):
        mine = (rank, bool(deleted[row]), row)
        if key not in best or best[key] < mine:
            best[key] = mine
    return sorted(row for _, _, row in best.values())


class Upsert:
    """How the rows of one table replace each other."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        table: Table,
        columns: Sequence[Column],
        key: Sequence[str],
    ) -> None:
        self._connection = connection
        self._table = table
        self._target = quoted(table.name)
        self._columns = columns
        self._key = list(key)
        self._at = [i for i, c in enumerate(columns) if c.name in key]
        self._names = ", ".join(quoted(c.name) for c in columns)
        self._marks = ", ".join("?" * len(columns))

    def make(self) -> None:
        """What it needs besides the table."""
        keys = ", ".join(quoted(k) for k in self._key)
        self._connection.execute(
            f"CREATE INDEX {quoted(self._table.name + '_key')} ON {self._target} ({keys})"
        )

    def insert(self, values: Values) -> None:
        self._connection.executemany(
            f"INSERT INTO {self._target} ({self._names}) VALUES ({self._marks})", rows_of(values)
        )

    def replace(self, values: Values, batch: pa.Table, deleted: Sequence[bool] | None) -> None:
        """Put the rows of a batch in the place of those with their keys."""
        keys = list(zip(*(values[i] for i in self._at), strict=True))
        if self._table.order_by is not None:
            removed = deleted or [False] * len(keys)
            stay = winners(batch.column(self._table.order_by), removed, keys)
            if len(stay) < len(keys):
                values = [[column[i] for i in stay] for column in values]
                deleted = [removed[i] for i in stay]
            self._by_version(values, deleted)
            return
        if len(set(keys)) != len(keys):
            raise Refused(key_twice(self._table.name, self._table.location, self._key))
        self._connection.executemany(f"DELETE FROM {self._target} WHERE {self._same('?')}", keys)
        if deleted is not None:
            kept = [i for i, gone in enumerate(deleted) if not gone]
            values = [[column[i] for i in kept] for column in values]
        self.insert(values)

    def _by_version(self, values: Values, deleted: Sequence[bool] | None) -> None:
        """Only what is not older than what is there; a removal is remembered with its version."""
        run = self._connection.execute
        order = quoted(str(self._table.order_by))
        body = ", ".join(c.sql for c in self._columns)
        run(f"CREATE TEMP TABLE IF NOT EXISTS _evertable_batch ({body}, {_FLAG})")
        run(f"DELETE FROM {_BATCH}")
        flags = deleted or [False] * len(values[0])
        self._connection.executemany(
            f"INSERT INTO {_BATCH} VALUES ({self._marks}, ?)", rows_of([*values, flags])
        )
        newer = f"(t.{order} > b.{order} OR (b.{order} IS NULL AND t.{order} IS NOT NULL))"
        there = [self._target]
        if self._table.delete_when is not None:
            self._make_removals()
            there.append(_GONE)
        for table in there:
            same = self._same("t")
            run(
                f"DELETE FROM {_BATCH} AS b WHERE EXISTS "
                f"(SELECT 1 FROM {table} AS t WHERE {same} AND {newer})"
            )
        for table in there:
            run(
                f"DELETE FROM {table} WHERE rowid IN (SELECT t.rowid FROM {_BATCH} AS b "
                f"JOIN {table} AS t ON {self._same('t')})"
            )
        run(
            f"INSERT INTO {self._target} ({self._names}) "
            f"SELECT {self._names} FROM {_BATCH} WHERE NOT {_FLAG}"
        )
        if self._table.delete_when is not None:
            names = dict.fromkeys((*self._key, str(self._table.order_by)))
            versions = ", ".join(map(quoted, names))
            run(f"INSERT INTO {_GONE} SELECT {versions} FROM {_BATCH} WHERE {_FLAG}")

    def _make_removals(self) -> None:
        order = str(self._table.order_by)
        body = ", ".join(
            c.sql
            for name in dict.fromkeys((*self._key, order))
            for c in self._columns
            if c.name == name
        )
        keys = ", ".join(quoted(k) for k in self._key)
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {_GONE} ({body})")
        self._connection.execute(f"CREATE INDEX IF NOT EXISTS {_GONE}_key ON {_GONE} ({keys})")

    def _same(self, other: str) -> str:
        """IS, not =, so that NULL is a key like any other."""
        if other == "?":
            return " AND ".join(f"{quoted(k)} IS ?" for k in self._key)
        return " AND ".join(f"{other}.{quoted(k)} IS b.{quoted(k)}" for k in self._key)
