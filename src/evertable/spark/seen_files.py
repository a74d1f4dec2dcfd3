"""Files that a file stream takes for read, in the log that Spark keeps of them.

An entry belongs to the batch that read it, and a batch reads the entries that belong to it. One
that belongs to none is never read, and known all the same: so a stream can begin after them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

_OF_NO_BATCH = 4_000_000_000_000_000_000  # Spark asserts that it is not negative


def seen(checkpoint: str, source: str) -> list[dict[str, object]]:
    """What the log of a stream has, compacted or not."""
    folder = Path(checkpoint, "sources", source)
    found: dict[str, dict[str, object]] = {}
    for file in sorted(folder.glob("[0-9]*"), key=lambda f: int(f.name.split(".")[0])):
        for line in file.read_text().splitlines()[1:]:
            entry = json.loads(line)
            found[str(entry["path"])] = entry
    return list(found.values())


def files_there(path: str, before: float | None = None) -> list[dict[str, object]]:
    """The files below a folder, or those from before a moment (seconds of Unix)."""
    found: list[dict[str, object]] = []
    for folder, folders, names in os.walk(path):
        folders[:] = [f for f in folders if not f.startswith(("_", "."))]
        for name in names:
            file = os.path.join(folder, name)
            if name.startswith(("_", ".")):
                continue
            changed = os.stat(file).st_mtime
            if before is None or changed < before:
                uri = "file://" + file  # as Hadoop writes it
                found.append({"path": uri, "timestamp": int(changed * 1000)})
    return found


def take_for_read(checkpoint: str, source: str, entries: Iterable[dict[str, object]]) -> None:
    """Begin the log of a stream with these, in a checkpoint without batches."""
    folder = Path(checkpoint, "sources", source)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = [
        json.dumps({**entry, "batchId": _OF_NO_BATCH}, separators=(",", ":")) for entry in entries
    ]
    draft = folder / f".0.{os.getpid()}"
    draft.write_text("\n".join(["v1", *lines]))
    draft.replace(folder / "0")
