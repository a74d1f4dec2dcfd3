"""SQL over embedded tables while their stream runs: read-only, in well under a second, no JVM."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evertable.errors import DefinitionError, Finding, Refused
from evertable.location import Location
from evertable.model.names import did_you_mean
from evertable.sinks.embedded.columns import register_collation, register_converters
from evertable.sinks.embedded.ledger import LEDGER, escaped

_MOST_ATTACHED = 10  # what SQLite allows


@dataclass(frozen=True)
class Answer:
    """The rows of a query, and how far each table it read was."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    as_of: dict[str, int | None]  # table -> its newest batch


def query(sql: str, files: dict[str, str], others: Sequence[str] = ()) -> Answer:
    """Run SQL over the tables in `files` (name -> SQLite file).

    `others` are tables of the pipeline that are not embedded, for a better message.
    """
    register_converters()
    connection = sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_DECLTYPES, uri=True)
    try:
        # sessions of readers: SQLite gives each file a consistent snapshot in one transaction
        named = [t for t in files if re.search(rf"\b{re.escape(t)}\b", sql, re.IGNORECASE)]
        attached = [t for t in named if os.path.exists(files[t])]
        if len(attached) > _MOST_ATTACHED:
            raise Refused(
                Finding(
                    "TABLES_TOO_MANY",
                    f"the query names {len(attached)} tables, and {_MOST_ATTACHED} can be read "
                    "at once",
                    Location("query", 1),
                )
            )
        register_collation(connection)
        for number, table in enumerate(attached):
            connection.execute(
                f"ATTACH ? AS embedded_{number}", (f"file:{escaped(files[table])}?mode=ro",)
            )
        connection.set_authorizer(_only_reading)
        connection.execute("BEGIN")
        cursor = connection.execute(sql)
        rows = cursor.fetchall()
        columns = [d[0] for d in cursor.description or ()]
        as_of = {t: _newest(connection, number) for number, t in enumerate(attached)}
        return Answer(columns, rows, as_of)
    except sqlite3.Error as e:
        raise _explained(e, files, others) from e
    finally:
        connection.close()


def _newest(connection: sqlite3.Connection, number: int) -> int | None:
    row = connection.execute(f"SELECT batch FROM embedded_{number}.{LEDGER}").fetchone()
    return row[0] if row else None


_READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_TRANSACTION,
}


def _only_reading(action: int, *arguments: str | None) -> int:
    if action not in _READS or (
        action == sqlite3.SQLITE_FUNCTION and "load_extension" in arguments
    ):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _explained(
    error: sqlite3.Error, files: dict[str, str], others: Sequence[str]
) -> DefinitionError | Refused:
    place = Location("query", 1)
    text = str(error)
    missing = re.search(r"no such table: (?:\w+\.)?(.+)", text)
    if missing:
        return _no_table(missing[1], files, others, place)
    if "not authorized" in text or "prohibited" in text:
        return Refused(
            Finding(
                "QUERY_READS_ONLY",
                "a query reads; it cannot change anything",
                place,
                hint="SELECT … FROM a table of the pipeline",
            )
        )
    column = re.search(r"no such column: (.+)", text)
    if column:
        return DefinitionError(
            Finding("COLUMN_UNKNOWN", f'there is no column "{column[1]}"', place)
        )
    if "one statement" in text:
        return DefinitionError(Finding("SQL_INVALID", "one statement at a time", place))
    return DefinitionError(Finding("SQL_INVALID", f"SQLite says: {text}", place))


def _no_table(
    name: str, files: dict[str, str], others: Sequence[str], place: Location
) -> DefinitionError | Refused:
    kept = {t.lower(): t for t in files}
    if name.lower() in kept:
        return Refused(
            Finding(
                "TABLE_EMPTY",
                f'table "{kept[name.lower()]}" has no rows yet: it has not run',
                place,
                hint="`evertable run` fills it",
            )
        )
    if name.lower() in (o.lower() for o in others):
        return Refused(
            Finding(
                "TABLE_ELSEWHERE",
                f'table "{name}" is not embedded: its rows are where its sink put them',
                place,
                hint="leave `sink` out to keep it here",
            )
        )
    known = [*files, *others]
    return DefinitionError(
        Finding(
            "TABLE_UNKNOWN",
            f'there is no table "{name}"',
            place,
            hint=did_you_mean(name, known) or f"tables: {', '.join(known)}",
        )
    )
