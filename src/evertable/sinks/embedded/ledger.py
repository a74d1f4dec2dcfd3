"""The ledger in a SQLite file: who may write to it, which batch it has, and how rows are kept."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from evertable.errors import Refused
from evertable.location import Location
from evertable.model.ledger import LedgerEntry
from evertable.sinks.seam import Held, fenced, owned

LEDGER = "_evertable_ledger"
_NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
_MAKE = f"""
CREATE TABLE IF NOT EXISTS {LEDGER} (
  query_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, batch INTEGER, digest TEXT,
  mode TEXT, key TEXT, written_at TEXT NOT NULL DEFAULT ({_NOW}), owner TEXT
)"""


def connect(file: str) -> sqlite3.Connection:
    """A writer's connection. `synchronous=FULL`: what is committed is on the disk."""
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        if os.path.getsize(file) == 0:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class Ledger:
    """One query's place in the ledger of a file."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        table: str,
        place: Location | None,
        query_id: str,
        owner: str = "",
    ) -> None:
        self._connection = connection
        self._table = table
        self._place = place
        self._query_id = query_id
        self._owner = owner  # pipeline/table, for people
        self._epoch = 0

    def claim(self) -> LedgerEntry | None:
        """Raise the epoch, so that a writer before us can commit nothing more."""
        with transaction(self._connection):
            self._make()
            row = self._connection.execute(
                f"SELECT query_id, owner, epoch, batch, digest FROM {LEDGER}"
            ).fetchone()
            if row is None:
                self._epoch = 1
                self._connection.execute(
                    f"INSERT INTO {LEDGER} (query_id, epoch, owner) VALUES (?, 1, ?)",
                    (self._query_id, self._owner),
                )
                return None
            before, owner, epoch, batch, digest = row
            if before != self._query_id:
                raise Refused(owned(self._table, self._place, before, owner, self._query_id))
            self._epoch = epoch + 1
            self._connection.execute(
                f"UPDATE {LEDGER} SET epoch = ?, owner = ?", (self._epoch, self._owner)
            )
            return None if batch is None else LedgerEntry(before, batch, digest)

    def _make(self) -> None:
        """One that an older version made does not say whose it is."""
        self._connection.execute(_MAKE)
        columns = self._connection.execute("SELECT name FROM pragma_table_info(?)", (LEDGER,))
        if ("owner",) not in columns.fetchall():
            self._connection.execute(f"ALTER TABLE {LEDGER} ADD COLUMN owner TEXT")

    def kept_as(self) -> tuple[str | None, str | None]:
        """The mode and the key that rows were last written with."""
        mode, key = self._connection.execute(f"SELECT mode, key FROM {LEDGER}").fetchone()
        return mode, key

    def keep_as(self, mode: str, key: str) -> None:
        self._connection.execute(f"UPDATE {LEDGER} SET mode = ?, key = ?", (mode, key))

    def check(self, entry: LedgerEntry) -> None:
        """Before something that cannot be taken back: whether `seal` would still be let through."""
        row = self._connection.execute(
            f"SELECT 1 FROM {LEDGER} WHERE query_id = ? AND epoch = ? AND coalesce(batch, -1) < ?",
            (self._query_id, self._epoch, entry.batch),
        ).fetchone()
        if row is None:
            raise Refused(fenced(self._table, self._place))

    def seal(self, entry: LedgerEntry) -> None:
        """The last step: only for the newest claim, and only forwards."""
        changed = self._connection.execute(
            f"UPDATE {LEDGER} SET batch = ?, digest = ?, written_at = {_NOW} "
            "WHERE query_id = ? AND epoch = ? AND coalesce(batch, -1) < ?",
            (entry.batch, entry.digest, self._query_id, self._epoch, entry.batch),
        ).rowcount
        if changed != 1:
            raise Refused(fenced(self._table, self._place))


def held(file: str) -> Held | None:
    """What the ledger of a file says; None where there is none."""
    if not os.path.exists(file):
        return None
    connection = sqlite3.connect(f"file:{escaped(file)}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        row = connection.execute(f"SELECT * FROM {LEDGER}").fetchone()
    except sqlite3.OperationalError:
        return None
    finally:
        connection.close()
    if row is None:
        return None
    owner = row["owner"] if "owner" in row.keys() else None  # noqa: SIM118
    return Held(
        file,
        row["query_id"],
        row["batch"],
        row["digest"] or "",
        owner or "",
        row["epoch"],
        row["written_at"],
    )


def release(file: str) -> None:
    """Forget whose the rows are; they stay."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=30)
    try:
        connection.execute(f"DELETE FROM {LEDGER}")
    finally:
        connection.close()


def escaped(path: str) -> str:
    """A path as a part of SQLite's URI."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
