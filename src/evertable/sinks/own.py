"""Sinks of the user's: a class with the methods of the seam, and a ledger for whoever has none."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evertable.errors import EvertableError, Finding, Refused
from evertable.model.capabilities import Guarantee
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import OutputMode, Table
from evertable.sinks.embedded.ledger import Ledger, connect, transaction
from evertable.sinks.functions import PYTHON, code_of
from evertable.sinks.seam import Session, Sink
from evertable.user_code import failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def made(target: Any, options: Mapping[str, str], table: Table) -> Any:
    """The connector itself, made with its options where a class is given."""
    with _blamed(table, "could not be made"):
        return target(**options) if isinstance(target, type) else target


class OwnSink:
    """A connector of the user's. What it does not say of itself is taken to be the least."""

    def __init__(self, connector: Any) -> None:
        self._connector = connector
        guarantee: Guarantee = getattr(connector, "guarantee", "at least once")
        self.capabilities = replace(
            PYTHON,
            guarantee=guarantee,
            ledger=guarantee == "exactly once",
            modes=tuple(getattr(connector, "modes", PYTHON.modes)),
        )

    def open(self, table: Table, query_id: str) -> OwnSession:
        with _blamed(table, "could not be opened"):
            return OwnSession(self._connector.open(table, query_id), table)


class OwnSession:
    """A session of the user's: `write(rows, entry, mode, keys)`, and whatever else it has."""

    def __init__(self, session: Any, table: Table) -> None:
        self._session = session
        self._table = table
        self.last: LedgerEntry | None = getattr(session, "last", None)
        self._wants_written = "written" in inspect.signature(session.write).parameters

    def prepare(self, schema: StructType, mode: OutputMode, keys: Sequence[str]) -> None:
        if hasattr(self._session, "prepare"):
            with _blamed(self._table, "is not ready"):
                self._session.prepare(schema, mode, keys)

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        more = {"written": written} if self._wants_written else {}
        with _blamed(self._table, "failed"):
            count = self._session.write(rows, entry, mode, keys, **more)
        self.last = getattr(self._session, "last", None)
        return count if isinstance(count, int) else None

    def maintain(self) -> Iterable[Finding]:
        if hasattr(self._session, "maintain"):
            return self._session.maintain() or ()
        return ()

    def close(self) -> None:
        if hasattr(self._session, "close"):
            self._session.close()


class LedgeredSink:
    """Notes in a file of ours which batches a sink got that has no ledger.

    The two are not one commit: killed between them, the sink gets its last batch again.
    """

    def __init__(self, sink: Sink, file: str, owner: str) -> None:
        self._sink = sink
        self._file = file
        self._owner = owner
        self.capabilities = replace(sink.capabilities, ledger=True)

    def open(self, table: Table, query_id: str) -> LedgeredSession:
        connection = connect(self._file)
        try:
            ledger = Ledger(connection, table.name, table.location, query_id, self._owner)
            last = ledger.claim()
            return LedgeredSession(self._sink.open(table, query_id), connection, ledger, last)
        except BaseException:
            connection.close()
            raise


class LedgeredSession:
    def __init__(
        self,
        session: Session,
        connection: sqlite3.Connection,
        ledger: Ledger,
        last: LedgerEntry | None,
    ) -> None:
        self._session = session
        self._connection = connection
        self._ledger = ledger
        self.last = last

    def prepare(self, schema: StructType, mode: OutputMode, keys: Sequence[str]) -> None:
        self._session.prepare(schema, mode, keys)

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        self._ledger.check(entry)
        count = self._session.write(rows, entry, mode, keys, written)
        with transaction(self._connection):
            self._ledger.seal(entry)
        self.last = entry
        return count

    def maintain(self) -> Iterable[Finding]:
        return self._session.maintain()

    def close(self) -> None:
        try:
            self._session.close()
        finally:
            self._connection.close()


@contextmanager
def _blamed(table: Table, what: str) -> Iterator[None]:
    """An exception of the user's code as one finding, with the user's own line."""
    try:
        yield
    except EvertableError:
        raise
    except Exception as e:
        from pyspark.errors.exceptions.captured import CapturedException

        if isinstance(e, CapturedException):
            raise
        message = f'your sink of table "{table.name}" {what}'
        raise Refused(failure(e, message, code_of(e)).at(table.location)) from e
