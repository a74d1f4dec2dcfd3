"""The ledger in Postgres: one small table beside the targets, a row for each of them."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from evertable.errors import Finding, Refused
from evertable.model.ledger import LedgerEntry
from evertable.sinks.postgres.client import About, Client
from evertable.sinks.postgres.columns import quoted
from evertable.sinks.postgres.target import Name
from evertable.sinks.seam import Held, fenced, owned

LEDGER = "_evertable_ledger"
_COLUMNS = """
  target text PRIMARY KEY, query_id text NOT NULL, owner text NOT NULL, epoch bigint NOT NULL,
  run text NOT NULL,
  batch bigint, digest text, mode text, key text, made_by_us boolean NOT NULL DEFAULT false,
  staged boolean NOT NULL DEFAULT false, written_at timestamptz NOT NULL DEFAULT now()
"""
_PATIENCE = 10.0  # seconds for a predecessor to be gone


@dataclass(frozen=True)
class Claim:
    """What one query was given of a target."""

    epoch: int
    last: LedgerEntry | None
    staged: bool  # batches were large when it was written last
    kept_as: tuple[str, str] | None  # mode and key of the rows that are there
    made_by_us: bool


class Ledger:
    """One target's row."""

    def __init__(self, client: Client, about: About, name: Name, query_id: str) -> None:
        self._client = client
        self._about = about
        self._name = name
        self._query_id = query_id
        self._table = f"{quoted(name.schema)}.{LEDGER}"
        self._epoch = 0

    def claim(self, owner: str, run: str, *, again: bool) -> Claim:
        """Raise the epoch, so that a writer before us can commit nothing more.

        `run` names this run: one that comes `again` and finds another there may not take it back.
        """
        with self._client.transaction():
            self._make()
            row = self._client.row(
                f"SELECT query_id, owner, run FROM {self._table} WHERE target = $1",
                self._name.table,
            )
        if row and row[0] != self._query_id:
            before, of, _ = row
            raise Refused(owned(self._about.table, self._about.place, before, of, self._query_id))
        if again and (row is None or row[2] != run):
            raise Refused(fenced(self._about.table, self._about.place))
        self._lock()
        with self._client.transaction():
            row = self._client.row(
                f"INSERT INTO {self._table} AS l (target, query_id, owner, epoch, run) "
                "VALUES ($1, $2, $3, 1, $4) ON CONFLICT (target) DO UPDATE "
                "SET epoch = l.epoch + 1, owner = EXCLUDED.owner, run = EXCLUDED.run "
                "WHERE l.query_id = EXCLUDED.query_id "
                "RETURNING epoch, batch, digest, staged, mode, key, made_by_us",
                self._name.table,
                self._query_id,
                owner,
                run,
            )
        if row is None:  # somebody else took it between the two
            raise Refused(
                owned(self._about.table, self._about.place, "another one", None, self._query_id)
            )
        self._epoch, batch, digest, staged, mode, key, made = row
        last = None if batch is None else LedgerEntry(self._query_id, batch, digest)
        return Claim(self._epoch, last, staged, (mode, key) if mode else None, made)

    def keep_as(self, mode: str, key: str, *, made: bool) -> None:
        self._client.rows(
            f"UPDATE {self._table} SET mode = $2, key = $3, made_by_us = made_by_us OR $4 "
            "WHERE target = $1 RETURNING 1",
            self._name.table,
            mode,
            key,
            made,
        )

    def seal(self, entry: LedgerEntry, *, staged: bool) -> None:
        """The last statement before the commit: only for the newest claim, and only forwards."""
        sealed = self._client.rows(
            f"UPDATE {self._table} SET batch = $1, digest = $2, staged = $3, "
            "written_at = clock_timestamp() "
            "WHERE target = $4 AND query_id = $5 AND epoch = $6 AND coalesce(batch, -1) < $1 "
            "RETURNING 1",
            entry.batch,
            entry.digest,
            staged,
            self._name.table,
            self._query_id,
            self._epoch,
        )
        if not sealed:
            raise Refused(fenced(self._about.table, self._about.place))

    def will_stage(self) -> None:
        """Remember, through whatever comes, that batches are large."""
        with self._client.transaction():
            self._client.rows(
                f"UPDATE {self._table} SET staged = true WHERE target = $1 RETURNING 1",
                self._name.table,
            )

    def held(self) -> tuple[Held, bool] | None:
        """What it says, and whether the table was made by us; None where it says nothing."""
        there = self._client.row(
            "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = $2",
            self._name.schema,
            LEDGER,
        )
        row = there and self._client.row(
            "SELECT query_id, batch, coalesce(digest, ''), owner, epoch, "
            "to_char(written_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'), "
            f"made_by_us FROM {self._table} WHERE target = $1",
            self._name.table,
        )
        return (Held(str(self._name), *row[:-1]), row[-1]) if row else None

    def forget(self) -> None:
        self._client.rows(
            f"DELETE FROM {self._table} WHERE target = $1 RETURNING 1", self._name.table
        )

    def _make(self) -> None:
        there = self._client.row(
            "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = $2",
            self._name.schema,
            LEDGER,
        )
        if there:
            return
        # two queries that begin at once would both make it, and one would fail
        self._client.rows("SELECT pg_advisory_xact_lock($1)::text", _number(LEDGER))
        self._client.run(f"CREATE TABLE IF NOT EXISTS {self._table} ({_COLUMNS})")

    def _lock(self) -> None:
        """Hold the lock of this query on this target; a backend that still has it is ended."""
        number = _number(f"{self._query_id} {self._name}")
        until = time.monotonic() + _PATIENCE
        while True:
            ((mine,),) = self._client.rows("SELECT pg_try_advisory_lock($1)", number)
            self._client.commit()
            if mine:
                return
            if time.monotonic() > until:
                raise Refused(
                    Finding(
                        "SINK_BUSY",
                        f"{self._about.what} is held by a run before this one",
                        self._about.place,
                        detail="its connection could not be ended",
                        hint="stop that run first",
                    )
                )
            # Only who holds this very lock, and only if it is still waiting for nothing better.
            self._client.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
                "AND granted AND objsubid = 1 AND pid <> pg_backend_pid() "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
                "AND ((classid::bigint << 32) | objid::bigint) = $1",
                number,
            )
            self._client.commit()
            time.sleep(0.02)


def _number(text: str) -> int:
    """A name as the signed 64 bits that advisory locks are known by."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
