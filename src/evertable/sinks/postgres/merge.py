"""The SQL by which a batch in a table of its own gets into its target. Texts only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evertable.sinks.postgres.columns import Column, quoted
from evertable.sinks.postgres.target import Name, There
from evertable.sinks.versions import DELETED

_FLAG = quoted(DELETED)
_PLAIN_TEXT = {"text", "varchar", "bpchar"}
_LONGEST = 63  # bytes of a name; Postgres cuts the rest off, and two names would be one


@dataclass(frozen=True)
class Merge:
    """How rows of one batch, `b`, replace those of the target, `t`."""

    target: Name
    there: There
    columns: Sequence[Column]
    key: Sequence[str]
    order_by: str | None
    deletes: bool

    @property
    def remembers(self) -> bool:
        """Whether removals are kept, with their versions."""
        return self.deletes and self.order_by is not None

    @property
    def removals(self) -> str:
        """The table of keys that were removed, and by which version."""
        return f"{quoted(self.target.schema)}.{quoted(self._removals_name())}"

    def make_removals(self) -> Iterator[str]:
        """That table, with the types of the target."""
        names = ", ".join(map(quoted, self._versions()))
        index = quoted(_short(f"{self._removals_name()}_key"))
        yield (
            f"CREATE TABLE IF NOT EXISTS {self.removals} AS "
            f"SELECT {names} FROM {self.target.sql} WITH NO DATA"
        )
        yield f"CREATE INDEX IF NOT EXISTS {index} ON {self.removals} ({self._keys()})"

    def append(self, batch: str) -> str:
        return (
            f"INSERT INTO {self.target.sql} ({self._names()}) "
            f"SELECT {self._values()} FROM {batch} AS b"
        )

    def twice(self, batch: str) -> str:
        """A key that a batch has more than once."""
        return (
            f"SELECT 1 FROM {batch} AS b GROUP BY {self._keys_of_batch()} "
            "HAVING count(*) > 1 LIMIT 1"
        )

    def null_keys(self, batch: str) -> str:
        nulls = " OR ".join(f"{quoted(k)} IS NULL" for k in self.key)
        return f"SELECT 1 FROM {batch} WHERE {nulls} LIMIT 1"

    def upsert(self, batch: str) -> str:
        """One statement, where nothing is removed."""
        one = order = where = ""
        if self.order_by is not None:
            version = quoted(self.order_by)
            one = f"DISTINCT ON ({self._keys_of_batch()}) "
            order = f" ORDER BY {self._keys_of_batch()}, b.{version} DESC NULLS LAST"
            where = f" WHERE t.{version} IS NULL OR EXCLUDED.{version} >= t.{version}"
        return (
            f"INSERT INTO {self.target.sql} AS t ({self._names()}) "
            f"SELECT {one}{self._values()} FROM {batch} AS b{order} "
            f"ON CONFLICT ({self._keys()}) {self._action()}{where}"
        )

    def large(self, batch: str) -> str:
        """The same for many rows without a NULL in their keys: one join, where an upsert asks the
        index row by row."""
        rest = [c for c in self.columns if c.name not in self.key]
        sets = ", ".join(f"{quoted(c.name)} = {self._value(c)}" for c in rest)
        (same,) = self._matches(nulls=False)
        return (
            f"MERGE INTO {self.target.sql} AS t USING {batch} AS b ON {same} "
            f"WHEN MATCHED THEN {'UPDATE SET ' + sets if rest else 'DO NOTHING'} "
            f"WHEN NOT MATCHED THEN INSERT ({self._names()}) VALUES ({self._values()})"
        )

    def upsert_and_remove(self, batch: str, *, nulls: bool) -> Iterator[str]:
        """Every statement of a batch in which rows are removed, in their order."""
        if self.order_by is not None:
            yield from self._leave_the_newest(batch, quoted(self.order_by), nulls=nulls)
        for same in self._matches(nulls=nulls):
            yield (
                f"DELETE FROM {self.target.sql} AS t USING {batch} AS b WHERE b.{_FLAG} AND {same}"
            )
        yield (
            f"INSERT INTO {self.target.sql} AS t ({self._names()}) SELECT {self._values()} "
            f"FROM {batch} AS b WHERE NOT b.{_FLAG} ON CONFLICT ({self._keys()}) {self._action()}"
        )
        if self.remembers:
            for same in self._matches(nulls=nulls):
                yield f"DELETE FROM {self.removals} AS t USING {batch} AS b WHERE {same}"
            names = self._versions()
            yield (
                f"INSERT INTO {self.removals} ({', '.join(map(quoted, names))}) "
                f"SELECT {', '.join(map(self._compared, names))} "
                f"FROM {batch} AS b WHERE b.{_FLAG}"
            )

    def _leave_the_newest(self, batch: str, version: str, *, nulls: bool) -> Iterator[str]:
        """One row a key in the batch, and none that is older than what is known of its key."""
        yield (
            f"DELETE FROM {batch} AS b USING (SELECT b.ctid, row_number() OVER ("
            f"PARTITION BY {self._keys_of_batch()} "
            f"ORDER BY b.{version} DESC NULLS LAST, b.{_FLAG} DESC) AS place "
            f"FROM {batch} AS b) AS r WHERE b.ctid = r.ctid AND r.place > 1"
        )
        newer = f"(t.{version} > b.{version} OR (b.{version} IS NULL AND t.{version} IS NOT NULL))"
        for table in (self.target.sql, self.removals):
            for same in self._matches(nulls=nulls):
                yield f"DELETE FROM {batch} AS b USING {table} AS t WHERE {same} AND {newer}"

    def _matches(self, *, nulls: bool) -> Iterator[str]:
        """An equality, which an index answers; NULLs by another one, where there are any."""
        pairs = [(f"t.{quoted(k)}", self._compared(k)) for k in self.key]
        yield " AND ".join(f"{t} = {b}" for t, b in pairs)
        if nulls:
            same = " AND ".join(f"{t} IS NOT DISTINCT FROM {b}" for t, b in pairs)
            some = " OR ".join(f"{b} IS NULL" for _, b in pairs)
            yield f"{same} AND ({some})"

    def _action(self) -> str:
        """A row that is nothing but its key is replaced by itself."""
        rest = [c.name for c in self.columns if c.name not in self.key] or self.key[:1]
        return "DO UPDATE SET " + ", ".join(f"{quoted(n)} = EXCLUDED.{quoted(n)}" for n in rest)

    def _names(self) -> str:
        return ", ".join(quoted(c.name) for c in self.columns)

    def _values(self) -> str:
        return ", ".join(self._value(c) for c in self.columns)

    def _value(self, column: Column) -> str:
        """Cast only where Postgres would not by itself: a cast to varchar(3) cuts text off."""
        there = self.there.column(column.name)
        needs = there is not None and column.sent == "text" and there.base not in _PLAIN_TEXT
        return f"b.{quoted(column.name)}" + (f"::{there.type}" if there and needs else "")

    def _compared(self, name: str) -> str:
        """A column of the batch as the target has it: `'A' = 'a'` is true of citext only."""
        return self._value(next(c for c in self.columns if c.name == name))

    def _keys(self) -> str:
        return ", ".join(map(quoted, self.key))

    def _keys_of_batch(self) -> str:
        return ", ".join(map(self._compared, self.key))

    def _versions(self) -> list[str]:
        return list(dict.fromkeys((*self.key, str(self.order_by))))

    def _removals_name(self) -> str:
        return _short(f"_evertable_deleted_{self.target.table}")


def _short(name: str) -> str:
    if len(name.encode()) <= _LONGEST:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name.encode()[:50].decode(errors='ignore')}_{mark}"
