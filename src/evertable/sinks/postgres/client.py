"""A connection to Postgres, and what its errors mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from evertable.errors import Finding, NotReady, Refused
from evertable.location import Location
from evertable.spark.secrets import redact

if TYPE_CHECKING:
    pass

# Said to libpq where the user says nothing: a host that is gone is noticed within a minute.
_DEFAULTS = {"connect_timeout": "10", "keepalives_idle": "20", "tcp_user_timeout": "40000"}


_USER = re.compile(r"^\w+://(?:[^@/]*@)?")  # up to the host, as libpq reads it


@dataclass(frozen=True)
class About:
    """Whom an error is told about."""

    table: str
    place: Location | None
    url: str

    @property
    def what(self) -> str:
        return f'the sink of table "{self.table}"'


class Client:
    """One connection; a transaction begins with the first statement and ends with `commit`."""

    def __init__(self, url: str, about: About, name: str = "evertable") -> None:
        try:
            from adbc_driver_postgresql import dbapi
        except ImportError as e:
            raise NotReady.of(
                "CONNECTOR_MISSING",
                f"{about.what} needs the driver for Postgres, which is not installed",
                place=about.place,
                hint="pip install 'evertable[postgres]'",
            ) from e
        self._about = about
        with self.explained():
            self._connection = dbapi.connect(completed(url, name))

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self.explained(), self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            found: list[tuple[Any, ...]] = cursor.fetchall()
            return found

    def row(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        return next(iter(self.rows(sql, *values)), None)

    def run(self, sql: str) -> int:
        """How many rows it changed. Statements with values are asked with `rows … RETURNING`."""
        with self.explained(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return int(cursor.rowcount)

    def ingest(self, table: str, rows: Any, *, schema: str | None = None) -> int:
        """Append Arrow rows to a table; without a schema, to a temporary one of this session."""
        with self.explained(), self._connection.cursor() as cursor:
            if schema is None:
                count = cursor.adbc_ingest(table, rows, mode="append", temporary=True)
            else:
                count = cursor.adbc_ingest(table, rows, mode="append", db_schema_name=schema)
            return int(count)

    def commit(self) -> None:
        with self.explained():
            self._connection.commit()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def rollback(self) -> None:
        try:
            self._connection.rollback()
        except Exception:  # the connection is gone, and the transaction with it
            return

    def close(self) -> None:
        try:
            self._connection.close()
        except Exception:
            return

    @contextmanager
    def explained(self) -> Iterator[None]:
        from adbc_driver_manager import Error

        try:
            yield
        except Error as e:
            raise Refused(problem(e, self._about)) from e


def completed(url: str, name: str) -> str:
    """The URL with our defaults where it leaves them open; libpq's own environment fills the rest.

    >>> completed("postgresql://db/x?connect_timeout=3", "me").partition("?")[2]
    'connect_timeout=3&keepalives_idle=20&tcp_user_timeout=40000&application_name=me'
    """
    missing = {
        key: value
        for key, value in {**_DEFAULTS, "application_name": name}.items()
        if not re.search(rf"\b{key}\s*=", url)
    }
    if "://" not in url:
        return " ".join([url, *(f"{k}='{v}'" for k, v in missing.items())]).strip()
    joint = "&" if "?" in _USER.sub("", url) else "?"
    more = "&".join(f"{k}={quote(v, safe='')}" for k, v in missing.items())
    return f"{url}{joint}{more}" if more else url


def shown(url: str) -> str:
    """Where a URL points, without who asks and by which password.

    >>> shown("postgresql://me:secret@db:5433/shop?sslmode=require")
    'db:5433/shop'
    >>> shown("postgresql://me:a#b?c@db/shop")
    'db/shop'
    """
    if "://" in url:
        return _USER.sub("", url).partition("?")[0] or "libpq's default"
    found = dict(re.findall(r"(\w+)\s*=\s*([^\s']+)", url))
    host = found.get("host", "")
    port = f":{found['port']}" if "port" in found else ""
    return f"{host}{port}/{found.get('dbname', '')}" if found else "libpq's default"


_DENIED = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|role \"[^\"]*\" does not exist|"
    r"database \"[^\"]*\" does not exist|certificate|does not support SSL"
)
_LOST = re.compile(
    r"server closed the connection|terminating connection|connection to server was lost|"
    r"no connection to the server|could not (?:receive|send) data|SSL SYSCALL|"
    r"connection not open|Connection reset|Broken pipe"
)
# SQLSTATE, or its class -> code, message, hint
_BY_STATE = {
    "40": ("SINK_BUSY", "{0} was in the way of another transaction", "it is tried again"),
    "55P03": ("SINK_BUSY", "{0} waits for a lock that somebody holds", "it is tried again"),
    "53": (
        "SINK_FULL", "the database of {0} has no room left", "make room; it is tried again",
    ),
    "42501": ("SINK_DENIED", "{0} may not do this in its database", "grant the role what it needs"),
    "28": ("SINK_DENIED", "the database does not let {0} in", "correct user, password or rights"),
    "3D": ("SINK_DENIED", "the database of {0} does not exist", "correct the name in `url`"),
    "42P01": (
        "TARGET_GONE", "the target of {0} is gone",
        "restore the table as it was, or `evertable drop {1}` and start over",
    ),
    "21000": (
        "KEY_TWICE", 'table "{1}" got one key twice in one batch',
        "say which one stays: `order_by: column`; or name a key that is unique",
    ),
    "42": (
        "SINK_SCHEMA", "the target of {0} does not fit any more",
        "`evertable check` compares it with the query",
    ),
    "22": (
        "VALUE_REFUSED", "Postgres cannot keep a value of table \"{1}\"",
        "change it in the query; text without the character U+0000: replace(x, char(0), '')",
    ),
    "54": ("VALUE_REFUSED", "a value of table \"{1}\" is larger than Postgres takes", ""),
    "23": (
        "VALUE_REFUSED", "a row of table \"{1}\" breaks a constraint of its target",
        "leave such rows out in the query, or drop the constraint",
    ),
}  # fmt: skip


def problem(error: BaseException, about: About) -> Finding:
    """One finding for an error of the driver."""
    text = redact(str(error))
    state = str(getattr(error, "sqlstate", None) or "") or _state(text)
    said = _said(text)
    if ("Failed to connect" in text and not _DENIED.search(text)) or (
        state[:2] in ("08", "57") or state == "25006" or _LOST.search(text)
    ):
        return Finding(
            "SINK_UNREACHABLE",
            f"{about.what} cannot reach Postgres at {shown(about.url)}",
            about.place,
            detail=said,
            hint="start the server, or correct `url`",
        )
    code, message, hint = (
        _BY_STATE["28"]
        if not state and _DENIED.search(text)
        else _BY_STATE.get(state)
        or _BY_STATE.get(state[:2])
        or ("SINK_FAILED", "Postgres refused what {0} asked of it", "")
    )
    return Finding(
        code,
        message.format(about.what, about.table),
        about.place,
        detail=said,
        hint=hint.format(about.what, about.table),
    )


def _state(text: str) -> str:
    """What the driver does not pass on, from its text."""
    found = re.search(r"SQLSTATE:? (\w{5})", text)
    if found is None and re.search(r"relation \"[^\"]*\" does not exist", text):
        return "42P01"
    return found[1] if found else ""


def _said(text: str) -> str:
    """Postgres' own sentence, and its DETAIL."""
    found = re.search(r"(?:ERROR|FATAL):\s+([^\n]+)", text)
    more = re.search(r"DETAIL:\s+([^\n]+)", text)
    first = found[1] if found else text.strip().partition("\n")[0]
    first = re.sub(r"^[A-Z_]+: \[libpq\] (?:Failed to connect: )?", "", first)
    return f"{first} ({more[1]})" if more else first
