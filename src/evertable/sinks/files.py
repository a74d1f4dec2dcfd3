"""Spark's own file sink: exactly once by its log of batches, kept in the folder itself.

That log knows batch numbers only. What it lacks to notice a lost or restored checkpoint, the query
id and the digest of the newest batch, stands in a file of ours beside it, written before the batch.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from evertable.errors import Finding, Refused
from evertable.model.capabilities import SinkCapabilities
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import OutputMode, Table
from evertable.sinks.seam import Held, gone, owned
from evertable.spark.file_sink import SparkFileSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TEXT = "compression encoding lineSep"
_DATES = "dateFormat timestampFormat timestampNTZFormat timeZone locale"
_BY_FORMAT = {
    "parquet": "compression datetimeRebaseMode",
    "orc": "compression",
    "json": f"{_TEXT} {_DATES} ignoreNullFields writeNonAsciiCharacterAsCodePoint",
    "csv": f"{_TEXT} {_DATES} sep delimiter quote escape header nullValue emptyValue quoteAll "
    "escapeQuotes charToEscapeQuoteEscaping ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace",
    "text": _TEXT,
    "xml": f"{_DATES} compression encoding rowTag rootTag declaration arrayElementName "
    "attributePrefix valueTag nullValue validateName",
    "avro": "compression avroSchema recordName recordNamespace",
}

SINKS = tuple(
    SinkCapabilities(
        formats=(format,),
        modes=("append",),
        guarantee="exactly once",
        ledger=True,
        options=frozenset({"path", "maxRecordsPerFile", "retention", *options.split()}),
        required=("path",),
        partitions=True,
        paths=("path",),
        connector="avro" if format == "avro" else None,
    )
    for format, options in _BY_FORMAT.items()
)

_LOG = "_spark_metadata"
_OURS = "_evertable"


class FileLog:
    """What a folder says of the batches in it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def exists(self) -> bool:
        return os.path.isdir(os.path.join(self.folder, _LOG)) or os.path.exists(
            os.path.join(self.folder, _OURS)
        )

    def newest(self) -> int:
        """The newest batch in the log, -1 for none; -2 where there is no log."""
        try:
            names = os.listdir(os.path.join(self.folder, _LOG))
        except FileNotFoundError:
            return -2
        return max((int(n.split(".")[0]) for n in names if n[0].isdigit()), default=-1)

    def has(self, batch: int) -> bool:
        """Whether the newest batch is still in the log."""
        file = os.path.join(self.folder, _LOG, str(batch))
        return batch < 0 or os.path.exists(file) or os.path.exists(f"{file}.compact")

    def held(self) -> Held | None:
        """What the log and our note beside it say."""
        notes = self.note()
        if not notes:
            return None
        newest = self.newest()
        digest = next((note.digest for note in notes if note.batch == newest), "")
        batch = newest if newest >= 0 else None
        return Held(self.folder, notes[0].query_id, batch, digest, self.owner())

    def files(self) -> list[str]:
        """The files of rows that the log knows, in this folder."""
        found: set[str] = set()
        for log in Path(self.folder, _LOG).glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                path = unquote(urlsplit(json.loads(line)["path"]).path)
                if path.startswith(self.folder + os.sep):
                    found.add(path)
        return sorted(found)

    def forget(self) -> None:
        """Remove the log, and the folders that are empty now."""
        shutil.rmtree(os.path.join(self.folder, _LOG), ignore_errors=True)
        Path(self.folder, _OURS).unlink(missing_ok=True)
        for folder, _, names in os.walk(self.folder, topdown=False):
            for crc in (n for n in names if n.startswith(".part-") and n.endswith(".crc")):
                if not os.path.exists(os.path.join(folder, crc[1:-4])):
                    os.unlink(os.path.join(folder, crc))
            with contextlib.suppress(OSError):  # not empty: it holds what is not ours
                os.rmdir(folder)

    def note(self) -> tuple[LedgerEntry, ...]:
        """The batch that was to be written last, and the one before it."""
        noted = self._noted()
        if not noted:
            return ()
        query_id = noted["query_id"]
        found = [noted, *([noted["before"]] if "before" in noted else [])]
        return tuple(LedgerEntry(query_id, one["batch"], one["digest"]) for one in found)

    def owner(self) -> str:
        """Whose the batches are, as pipeline/table; older notes do not say."""
        return str(self._noted().get("owner", ""))

    def _noted(self) -> dict[str, Any]:
        try:
            noted: dict[str, Any] = json.loads(Path(self.folder, _OURS).read_text())
        except FileNotFoundError:
            return {}
        return noted

    def write_note(self, entry: LedgerEntry, before: LedgerEntry | None, owner: str) -> None:
        os.makedirs(self.folder, exist_ok=True)
        draft = Path(self.folder, f".{_OURS}.{os.getpid()}")
        text: dict[str, object] = {
            "query_id": entry.query_id,
            "batch": entry.batch,
            "digest": entry.digest,
            "owner": owner,
        }
        if before is not None:
            text["before"] = {"batch": before.batch, "digest": before.digest}
        draft.write_text(json.dumps(text))
        draft.replace(Path(self.folder, _OURS))


class FileSink:
    """A folder of files; only batches in its log count."""

    def __init__(
        self,
        session: SparkSession,
        format: str,
        options: Mapping[str, str],
        partition_by: Sequence[str],
        owner: str,
    ) -> None:
        self.capabilities = next(s for s in SINKS if format in s.formats)
        self._options = options
        self._owner = owner
        self._spark = SparkFileSink(session, format, options, partition_by)

    def open(self, table: Table, query_id: str) -> FileSession:
        path = {option.lower(): value for option, value in self._options.items()}["path"]
        log = FileLog(path) if "://" not in path else None
        return FileSession(self._spark, log, query_id, table, self._owner)


class FileSession:
    """A claim on one folder."""

    def __init__(
        self,
        spark: SparkFileSink,
        log: FileLog | None,
        query_id: str,
        table: Table,
        owner: str,
    ) -> None:
        self._spark = spark
        self._log = log
        self._query_id = query_id
        self._table = table
        self._owner = owner
        self.last = self._newest()
        before = self.last.query_id if self.last and self._log else ""
        if self._log and before and before != query_id:
            raise Refused(owned(table.name, table.location, before, self._log.owner(), query_id))

    def _newest(self) -> LedgerEntry | None:
        """What the log has, with what we noted of that batch before it was written."""
        newest = self._spark.newest()
        notes = self._log.note() if self._log else ()
        for note in notes:
            if note.batch == newest:
                return note
        owner = notes[0].query_id if notes else ""
        return LedgerEntry(owner, newest, "") if newest >= 0 or owner else None

    def prepare(self, schema: StructType, mode: OutputMode, keys: Sequence[str]) -> None:
        if self._log is None:
            return
        # A reader that comes before the first batch sees by the log that files without an entry
        # in it do not count.
        os.makedirs(os.path.join(self._log.folder, _LOG), exist_ok=True)
        if not self._log.note():
            self._log.write_note(LedgerEntry(self._query_id, -1, ""), None, self._owner)

    def write(
        self,
        rows: DataFrame,
        entry: LedgerEntry,
        mode: OutputMode,
        keys: Sequence[str],
        written: Callable[[], None],
    ) -> int | None:
        if self.last is not None and self.last.batch >= entry.batch:
            # Spark's sink would leave the batch out without computing it, and the watermark with it
            rows.write.format("noop").mode("append").save()
            return None
        if self._log is not None:
            if self.last is not None and not self._log.has(self.last.batch):
                what = f"the log of batches in {self._log.folder}"
                raise Refused(gone(self._table.name, self._table.location, what))
            self._log.write_note(entry, self.last, self._owner)
        self._spark.add(rows, entry.batch)
        self.last = entry
        return None

    def maintain(self) -> Iterable[Finding]:
        return ()

    def close(self) -> None:
        pass
