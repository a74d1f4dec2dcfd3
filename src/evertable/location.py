"""Where something was defined: a file and a line, so that every message can point at it."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file the user wrote (line 0: the file as a whole)."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        shown = shorten(self.file)
        return f"{shown}:{self.line}" if self.line else shown

    def down(self, lines: int) -> Location:
        """The same file, some lines further down."""
        return Location(self.file, self.line + lines)


def shorten(path: str) -> str:
    """The path as the user would type it: relative where that is shorter."""
    if not os.path.isabs(path):
        return path
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else path
