"""A query's checkpoint folder, read as Spark writes it. Nothing here needs a JVM."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import time
import uuid
from pathlib import Path

from evertable.model.standing import Standing


class Checkpoint:
    """The offset log, the commit log and the query id of one table."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def query_id(self) -> str | None:
        try:
            return str(json.loads(Path(self.folder, "metadata").read_text())["id"])
        except FileNotFoundError:
            return None

    def make_query_id(self) -> str:
        """The id that Spark will find: chosen before the start, so that a sink can be claimed."""
        known = self.query_id()
        if known:
            return known
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        made = str(uuid.uuid4())
        self._write("metadata", json.dumps({"id": made}, separators=(",", ":")))
        return made

    def clear_drafts(self) -> None:
        """Remove what a crash left half-written in the logs; only for who holds the lock.

        Before its first batch Spark wants the offset log to be empty, and a draft of the very
        first offsets would keep the query from ever starting.
        """
        for log in (".", "offsets", "commits"):
            for draft in Path(self.folder, log).glob(".*.tmp*"):
                draft.unlink(missing_ok=True)

    def set_aside(self) -> str | None:
        """Keep it under another name; where it went, None where there is none."""
        if not os.path.isdir(self.folder):
            return None
        number = 1
        while os.path.exists(kept := f"{self.folder}.old-{number}"):
            number += 1
        os.rename(self.folder, kept)
        return kept

    def newest_kept(self) -> str | None:
        """The one that was set aside last."""
        found = glob.glob(glob.escape(self.folder) + ".old-*")
        return max(found, key=lambda name: int(name.rpartition("-")[2]), default=None)

    def last_offset(self) -> int:
        """The newest batch that was begun, -1 for none."""
        return max(self._numbers("offsets"), default=-1)

    def last_commit(self) -> int:
        """The newest batch that Spark has finished, -1 for none."""
        return max(self._numbers("commits"), default=-1)

    def offsets_digest(self, batch: int) -> str | None:
        """A digest of where a batch ends in every source; None where the log has it no more.

        The log's second line holds clocks and confs; what the batch reads are the lines below.
        """
        try:
            lines = self._lines("offsets", batch)
        except FileNotFoundError:
            return None
        return hashlib.sha256("\n".join(lines[2:]).encode()).hexdigest()

    def sources_named(self) -> bool | None:
        """Whether the checkpoint was begun with named sources; None where it does not say."""
        batches = self._numbers("offsets")
        if not batches:
            return None
        metadata = self._lines("offsets", max(batches))[1]
        if not metadata:  # a continuous trigger notes offsets only
            return None
        confs = json.loads(metadata).get("conf", {})
        key = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
        return str(confs.get(key, "false")) == "true"

    def standing(self) -> Standing:
        """Where it stands, as one value."""
        last = self.last_offset()
        if last < 0:
            return Standing(query_id=self.query_id() or "")
        version, metadata, *lines = self._lines("offsets", last)
        offsets = _by_source(version, lines)
        try:
            before = _by_source(version, self._lines("offsets", last - 1)[2:])
        except FileNotFoundError:
            before = {}
        values = json.loads(metadata) if metadata else {}
        return Standing(
            self.query_id() or "",
            last,
            self.last_commit(),
            self.sources_named(),
            offsets,
            frozenset(name for name, at in offsets.items() if before.get(name) != at),
            max(self.watermark_millis() or 0, values.get("batchWatermarkMs", 0)),
            values.get("conf", {}),
            self.keeps_state(),
        )

    def watermark_millis(self) -> int | None:
        """The watermark that the next batch will begin with."""
        last = self.last_commit()
        if last < 0:
            return None
        return int(json.loads(self._lines("commits", last)[1]).get("nextBatchWatermarkMs", 0))

    def has_pending_batch(self) -> bool:
        """Whether the last batch has moved the watermark, and no batch has used it yet.

        After the last batch with data Spark runs one more, in which the moved watermark closes
        windows. It decides so from memory, so after a restart it would wait for new rows.
        """
        last = self.last_commit()
        if last < 0 or self.last_offset() != last or not self.keeps_state():
            return False
        used: int = json.loads(self._lines("offsets", last)[1]).get("batchWatermarkMs", 0)
        return (self.watermark_millis() or 0) > used

    def begin_pending_batch(self) -> None:
        """Begin that batch: what is written is what Spark itself would have written next."""
        last = self.last_commit()
        version, metadata, *offsets = self._lines("offsets", last)
        values = json.loads(metadata) | {
            "batchWatermarkMs": self.watermark_millis(),
            "batchTimestampMs": int(time.time() * 1000),
        }
        text = "\n".join([version, json.dumps(values, separators=(",", ":")), *offsets])
        number = str(last + 1)
        Path(self.folder, "offsets", f".{number}.crc").unlink(missing_ok=True)
        self._write(os.path.join("offsets", number), text)

    def keeps_state(self) -> bool:
        """Whether a batch of the query has written state."""
        return os.path.isdir(os.path.join(self.folder, "state"))

    def _lines(self, log: str, batch: int) -> list[str]:
        return Path(self.folder, log, str(batch)).read_text().split("\n")

    def _write(self, name: str, text: str) -> None:
        """Whole or not at all, and on the disk."""
        path = Path(self.folder, name)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # never over what is there
        finally:
            draft.unlink()

    def _numbers(self, log: str) -> list[int]:
        try:
            names = os.listdir(os.path.join(self.folder, log))
        except FileNotFoundError:
            return []
        return [int(name) for name in names if name.isdigit()]


def _by_source(version: str, lines: list[str]) -> dict[str, str]:
    """Offsets by the names of their sources, or by their places where they have none."""
    if version == "v2":
        pairs = (line.partition(":") for line in lines if line)
        return {name: offset for name, _, offset in pairs}
    return {str(place): offset for place, offset in enumerate(lines)}
