"""Which topics a table has read, by their ids; the checkpoint knows their names only."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


class Identities:
    """`{stream: {topic: id}}` in one small file."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    def read(self) -> dict[str, dict[str, str]]:
        try:
            found: dict[str, dict[str, str]] = json.loads(self._file.read_text())
        except FileNotFoundError:
            return {}
        return found

    def write(self, identities: Mapping[str, Mapping[str, str]]) -> None:
        if not identities and not self._file.exists():
            return
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(identities, indent=1))
        draft.replace(self._file)
