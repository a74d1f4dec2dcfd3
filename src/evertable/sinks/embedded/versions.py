"""One embedded table takes the place of another, in one step for whoever reads."""

from __future__ import annotations

import os
import sqlite3
import time

from evertable.errors import Finding, Refused
from evertable.sinks.embedded.columns import quoted, register_collation
from evertable.sinks.embedded.ledger import LEDGER, held

_PATIENCE = 60.0  # seconds for readers to end


def swap(file: str, new_file: str, table: str, new_table: str, query_id: str) -> None:
    """The new file gets the name; the old one stays beside it. Can be done again."""
    if os.path.exists(new_file):
        _rename_inside(new_file, new_table, table)
    there = held(file)
    if there is not None and there.query_id == query_id:
        return  # it was done before
    if not os.path.exists(file):
        os.replace(new_file, file)
        return
    # In one file without a log beside it: a log would be taken for that of the new file.
    connection = _alone(file)
    try:
        kept = _kept_name(file)
        os.link(file, kept)
        os.replace(new_file, file)
    finally:
        connection.close()


def _rename_inside(file: str, name: str, table: str) -> None:
    connection = _alone(file)
    try:
        names = {n for (n,) in connection.execute("SELECT name FROM sqlite_master")}
        if name in names:
            connection.execute(f"ALTER TABLE {quoted(name)} RENAME TO {quoted(table)}")
        if f"{name}_key" in names:
            (sql,) = connection.execute(
                "SELECT sql FROM sqlite_master WHERE name = ?", (f"{name}_key",)
            ).fetchone()
            connection.execute(f"DROP INDEX {quoted(f'{name}_key')}")
            body = sql.partition(" ON ")[2]
            connection.execute(f"CREATE INDEX {quoted(f'{table}_key')} ON {body}")
        connection.execute(
            f"UPDATE {LEDGER} SET owner = substr(owner, 1, length(owner) - ?) || ? "
            "WHERE owner LIKE ?",
            (len(name), table, f"%/{name}"),
        )
        connection.execute("COMMIT")
    finally:
        connection.close()


def _alone(file: str) -> sqlite3.Connection:
    """A connection with the file for itself, which has no write-ahead log any more."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=1)
    register_collation(connection)
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=DELETE").fetchone()
            connection.execute("BEGIN EXCLUSIVE")
            return connection
        except sqlite3.OperationalError as e:
            if time.monotonic() > until:
                connection.close()
                raise Refused(
                    Finding(
                        "SINK_LOCKED", f'somebody reads "{file}"',
                        detail=str(e), hint="end that reader, and start again",
                    )
                ) from e  # fmt: skip
            time.sleep(0.05)


def _kept_name(file: str) -> str:
    stem, extension = os.path.splitext(file)
    number = 1
    while os.path.exists(kept := f"{stem}.old-{number}{extension}"):
        if os.path.samefile(kept, file):  # linked before a crash
            os.unlink(kept)
            return kept
        number += 1
    return kept
