"""Manifests on the disk: one file a version, beside the checkpoint of their table.

A version counts from the first batch that was finished with it. Until then it is a draft: a start
that failed has changed nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evertable.model.standing import Standing
from evertable.plan import manifest as manifests
from evertable.plan.manifest import Manifest

KEPT = 50
_LINES = 1_000  # of the history
_DRAFT = "draft.json"


@dataclass(frozen=True, slots=True)
class Version:
    """A manifest, and since when it counts."""

    number: int
    at: str
    query_id: str
    batch: int  # the first one that ran with it
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table's history."""

    at: str
    event: str  # started, or a way that was gone
    version: int
    batch: int
    offsets: Mapping[str, str] = field(default_factory=dict)
    answer: str = ""


class Keeping:
    """The versions of one table."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def newest(self, standing: Standing) -> Version | None:
        """The version that the checkpoint was last written with; None where there is none."""
        draft = self._read(self._folder / _DRAFT)
        if draft and draft.query_id == standing.query_id and standing.last_commit >= draft.batch:
            return draft
        found = [v for n in reversed(self._numbers()) if (v := self._read(self._file(n)))]
        return next((v for v in found if v.query_id == standing.query_id), None)

    def begun(self, standing: Standing) -> Version | None:
        """A draft whose first batch is begun and not finished: a sink may have it already."""
        draft = self._read(self._folder / _DRAFT)
        if draft is None or draft.query_id != standing.query_id or not standing.begun:
            return None
        return draft if standing.last_commit < draft.batch <= standing.last_offset else None

    def versions(self, standing: Standing) -> list[Version]:
        """All that are known, oldest first, the one that counts now last."""
        found = [v for n in self._numbers() if (v := self._read(self._file(n)))]
        newest = self.newest(standing)
        if newest and newest.number not in {v.number for v in found}:
            found.append(newest)
        return found

    def begin(self, made: Manifest, standing: Standing, *, answer: str = "") -> None:
        """Note what starts now, before its first batch."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = self.settle(standing)
        number = now.number if now else max(self._numbers(), default=0)
        if now is None or manifests.to_text(now.manifest) != manifests.to_text(made):
            number += 1
            draft = Version(number, _now(), standing.query_id, standing.next_batch, made)
            self._write(self._folder / _DRAFT, draft)
        else:
            (self._folder / _DRAFT).unlink(missing_ok=True)
        line = Line(_now(), "started", number, standing.next_batch, standing.offsets, answer)
        self._note(line)

    def settle(self, standing: Standing) -> Version | None:
        """The version that counts, kept as one from now on."""
        now = self.newest(standing)
        if now is not None and now.number not in self._numbers():  # the draft has come true
            self._write(self._file(now.number), now)
            self._forget()
        return now

    def take_over(self, folder: str, made: Manifest, standing: Standing) -> None:
        """A version with manifests of its own has taken this table's place. Can be done again."""
        if self.newest(standing) is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = self._read(self._folder / _DRAFT)
            if before is not None:
                self._write(self._file(before.number), before)
                (self._folder / _DRAFT).unlink()
            number = max(self._numbers(), default=0) + 1
            self._write(self._file(number), Version(number, _now(), standing.query_id, 0, made))
            self._forget()
            self.note("rebuilt", standing, "rebuild")
        shutil.rmtree(folder, ignore_errors=True)

    def note(self, event: str, standing: Standing, answer: str = "") -> None:
        """One more line of history."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = self.newest(standing)
        self._note(
            Line(_now(), event, now.number if now else 0, standing.next_batch,
                 standing.offsets, answer)
        )  # fmt: skip

    def history(self) -> list[Line]:
        try:
            text = (self._folder / "history.jsonl").read_text()
        except FileNotFoundError:
            return []
        found = []
        for line in text.splitlines():
            try:
                found.append(Line(**json.loads(line)))
            except (ValueError, TypeError):  # a line that a crash has cut
                continue
        return found

    def _note(self, line: Line) -> None:
        file = self._folder / "history.jsonl"
        value = {name: getattr(line, name) for name in Line.__slots__}
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) >= _LINES:
            _replace(file, "\n".join(lines[-_LINES // 2 :]) + "\n")
        with file.open("a") as out:
            out.write(json.dumps(value, separators=(",", ":")) + "\n")

    def _forget(self) -> None:
        for number in self._numbers()[:-KEPT]:
            self._file(number).unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(int(n[:-5]) for n in names if n.endswith(".json") and n[:-5].isdigit())

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.json"

    def _read(self, file: Path) -> Version | None:
        try:
            value: dict[str, Any] = json.loads(file.read_text())
            made = manifests.from_text(json.dumps(value.pop("manifest")))
            return Version(**value, manifest=made)
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def _write(self, file: Path, version: Version) -> None:
        head = {"number": version.number, "at": version.at, "query_id": version.query_id,
                "batch": version.batch}  # fmt: skip
        text = json.dumps(head, separators=(",", ":"))
        _replace(file, f'{text[:-1]},"manifest":{manifests.to_text(version.manifest)}}}')


def _replace(file: Path, text: str) -> None:
    """Whole or not at all."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(file)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
