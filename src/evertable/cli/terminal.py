"""What the terminal can show, and how things look on it. The only place that knows marks."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from evertable.errors import Finding
from evertable.spark.secrets import redact

_UTF8 = {"fine": "✓", "look": "!", "broken": "✗", "fact": "·", "question": "?", "next": "→"}
_ASCII = {"fine": "ok", "look": "!", "broken": "x", "fact": "-", "question": "?", "next": "->"}
_COLOURS = {
    "fine": "32", "look": "33", "broken": "31", "next": "36", "link": "36",
    "bold": "1", "dim": "2", "warning": "33", "error": "31",
}  # fmt: skip
WIDEST = 100

# Names, values and foreign messages may hold anything; a terminal must not act on it.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Terminal:
    """One stream that people look at."""

    out: TextIO
    live: bool = False  # may be redrawn
    asks: bool = False  # somebody can answer
    colour: bool = False
    utf8: bool = True
    width: int = WIDEST

    @classmethod
    def of(cls, out: TextIO, environment: Mapping[str, str] | None = None) -> Terminal:
        env = os.environ if environment is None else environment
        tty = out.isatty()
        dumb = env.get("TERM") == "dumb"
        encoding = (out.encoding or "ascii").lower().replace("-", "")
        try:
            width = os.get_terminal_size(out.fileno()).columns if tty else WIDEST
        except (OSError, ValueError):
            width = WIDEST
        return cls(
            out=out,
            live=tty and not dumb,
            asks=tty and sys.stdin is not None and sys.stdin.isatty(),
            colour=("FORCE_COLOR" in env or (tty and not dumb)) and "NO_COLOR" not in env,
            utf8=encoding in ("utf8", "utf_8") and not dumb,
            width=max(80, min(width, WIDEST)),
        )

    def mark(self, kind: str) -> str:
        return self.paint((_UTF8 if self.utf8 else _ASCII)[kind], kind)

    def paint(self, text: str, kind: str) -> str:
        code = _COLOURS.get(kind)
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and code else text

    def line(self, text: str = "") -> None:
        try:
            print(text, file=self.out, flush=True)
        except UnicodeEncodeError:
            print(text.encode("ascii", "replace").decode(), file=self.out, flush=True)

    def with_time(self, text: str, seconds: float) -> None:
        """A line with how long it took at its right edge."""
        took = duration(seconds)
        gap = max(2, self.width - 4 - visible(text) - len(took))
        self.line(f"{text}{' ' * gap}{self.paint(took, 'dim')}")

    def finding(self, finding: Finding) -> None:
        kind = "error" if finding.severity == "error" else "warning"
        place = f" {finding.place}" if finding.place else ""
        note = f" {finding.severity}:" if finding.severity != "error" else ""
        code = self.paint(finding.code, kind)
        self.line(f"{code}{clean(place)}:{note} {clean(redact(finding.message))}")
        for label in ("detail", "hint", "spark"):
            text = getattr(finding, label)
            if text:
                indent = "\n" + " " * (len(label) + 4)
                body = clean(redact(text)).replace("\n", indent)
                self.line(f"  {self.paint(label + ':', 'dim')} {body}")

    def findings(self, findings: Sequence[Finding]) -> None:
        """Errors first, an empty line between two of them."""
        order = {"error": 0, "warning": 1, "note": 2}
        for i, finding in enumerate(sorted(findings, key=lambda f: order[f.severity])):
            if i:
                self.line()
            self.finding(finding)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], right: set[int]) -> None:
        """Columns under their names; `right` are those of numbers."""
        body = [[clean(cell, newlines=False) for cell in row] for row in rows]
        widths = [max([len(name), *(len(row[i]) for row in body)]) for i, name in enumerate(header)]

        def one(cells: Sequence[str]) -> str:
            return "  ".join(
                cell.rjust(width) if i in right else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()

        self.line(self.paint(one(header), "bold"))
        for row in body:
            self.line(one(row))


def clean(text: str, *, newlines: bool = True) -> str:
    """Foreign text without anything a terminal would act on.

    >>> clean("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    text = _CONTROL.sub(lambda m: m[0].encode("unicode_escape").decode(), text)
    return text if newlines else text.replace("\n", "\\n").replace("\t", "\\t")


def plain(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[\d+m", "", text)


def visible(text: str) -> int:
    """How many columns a text takes, colours left out."""
    return len(plain(text))


def count(number: float) -> str:
    """1,340 · 271k · 13.9M

    >>> [count(n) for n in (7, 1340, 271_000, 13_900_000)]
    ['7', '1,340', '271k', '13.9M']
    """
    if number < 100_000:
        return f"{round(number):,}"
    if number < 1_000_000:
        return f"{number / 1000:.0f}k"
    if number < 1_000_000_000:
        return f"{number / 1e6:.1f}M"
    return f"{number / 1e9:.1f}G"


def size(number: int) -> str:
    """30 MB

    >>> [size(n) for n in (512, 19_000, 30_000_000)]
    ['512 B', '19 kB', '30 MB']
    """
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= one:
            shown = number / one
            return f"{shown:.1f} {unit}" if shown < 10 and unit == "GB" else f"{shown:.0f} {unit}"
    return f"{number} B"


def duration(seconds: float) -> str:
    """8s · 1m22s · 2h03m

    >>> [duration(s) for s in (0.04, 3.84, 8, 82, 7380)]
    ['0.04s', '3.8s', '8s', '1m22s', '2h03m']
    """
    if seconds < 0.1:
        return f"{seconds:.2f}s"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    if seconds < 3600:
        return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"
    if seconds < 86400:
        return f"{int(seconds) // 3600}h{int(seconds) % 3600 // 60:02d}m"
    return f"{int(seconds) // 86400}d{int(seconds) % 86400 // 3600:02d}h"


def plural(number: int, one: str, many: str | None = None) -> str:
    """1 stream · 3 streams"""
    return f"{number} {one if number == 1 else many or one + 's'}"


def cell(value: Any, *, thousands: bool) -> str:
    """A value of a result row as people read it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}" if thousands else str(value)
    if isinstance(value, float):
        return f"{value:,}" if thousands else repr(value)
    if isinstance(value, dict | list):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)
