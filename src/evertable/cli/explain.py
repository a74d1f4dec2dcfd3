"""A table's plan as people read it: from its sink up to its sources, in the terminal and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from evertable.check.foreseen import Foreseen, emission, keeps_of, promise
from evertable.cli.terminal import Terminal, clean
from evertable.model.facts import Step

_BRANCHES = {True: ("├─ ", "│  ", "└─ ", "   "), False: ("|- ", "|  ", "`- ", "   ")}
_NOTE_AT = 44  # the column at which a step says what it keeps


def explain(terminal: Terminal, seen: Foreseen) -> None:
    """One table: its modes, its steps, when rows come out."""
    table = seen.table
    terminal.line(f"{terminal.paint(table.name, 'bold')}  {table.output_mode} mode")
    for target in seen.targets:
        word, because = promise(seen, target)
        terminal.line(f"→ {target.spec.format}: {word}, {clean(because)}".replace(
            "→", terminal.mark("next")))  # fmt: skip
    if seen.plan.steps is not None:
        for text, note in _tree(seen.plan.steps, terminal.utf8):
            gap = " " * max(2, _NOTE_AT - len(text))
            terminal.line(clean(text) + (terminal.paint(f"{gap}{note}", "dim") if note else ""))
    for sentence in emission(seen):
        terminal.line(f"{terminal.mark('fact')} {clean(sentence)}")
    for mode, reason in seen.plan.refusals.items():
        terminal.line(f"{terminal.mark('fact')} not in {mode} mode: {clean(_short(reason))}")


def _short(reason: str) -> str:
    """Spark's reason without its code."""
    return reason.partition("] ")[2] or reason if reason.startswith("[") else reason


def _tree(step: Step, utf8: bool, lead: str = "", last: bool = True) -> Iterator[tuple[str, str]]:
    """(line, what is kept there), the step first and its inputs below it."""
    branch, bar, end, gap = _BRANCHES[utf8]
    kept = ", ".join(keeps_of(step.kept))
    note = f"keeps {kept}" if kept else ""
    yield f"{lead}{end if last else branch}{step.kind} {step.text}".rstrip(), note
    for number, below in enumerate(step.inputs, start=1):
        deeper = lead + (gap if last else bar)
        yield from _tree(below, utf8, deeper, number == len(step.inputs))


_WIDE, _HIGH, _GAP, _EDGE = 210, 62, 36, 16


def svg(tables: Sequence[Foreseen]) -> str:
    """All tables as one picture: sources at the left, sinks at the right."""
    drawn: list[str] = []
    top, widest = _EDGE, 0
    for seen in tables:
        picture = _Picture(seen)
        drawn.append(f'<g transform="translate({_EDGE},{top})">{picture.text}</g>')
        top += picture.height + _EDGE
        widest = max(widest, picture.width)
    style = (
        "text{font:12px system-ui,sans-serif;fill:#1c2430}.k{font-weight:600}.n{fill:#5a6675}"
        "rect{fill:#f4f6f9;stroke:#c3ccd8}.source rect{fill:#e8f3ec}.sink rect{fill:#e9effa}"
        "path{stroke:#8a97a8;fill:none}.h{font-size:14px;font-weight:600}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{widest + 2 * _EDGE}" height="{top}" '
        f'viewBox="0 0 {widest + 2 * _EDGE} {top}" role="img">'
        f"<style>{style}</style>{''.join(drawn)}</svg>\n"
    )


class _Picture:
    """One table: a column a step, the inputs of a step below each other."""

    def __init__(self, seen: Foreseen) -> None:
        self._parts: list[str] = []
        self._deepest = _depth(seen.plan.steps)
        self._row = 0
        self.width = (self._deepest + 1) * (_WIDE + _GAP) - _GAP
        title = f"{seen.table.name}: {seen.table.output_mode} mode"
        self._parts.append(f'<text class="h" x="0" y="14">{escape(title)}</text>')
        middle = self._draw(seen.plan.steps, 1) if seen.plan.steps else 0
        self._sinks(seen, middle)
        said = emission(seen)
        below = 28 + max(1, self._row) * (_HIGH + 12)
        for number, sentence in enumerate(said):
            self._parts.append(
                f'<text class="n" x="0" y="{below + 14 + 16 * number}">{escape(sentence)}</text>'
            )
        self.height = below + 16 * len(said) + 8

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def _sinks(self, seen: Foreseen, row: float) -> None:
        target = seen.targets[0] if seen.targets else None
        word = promise(seen, target).word if target else ""
        more = f" and {len(seen.targets) - 1} more" if len(seen.targets) > 1 else ""
        name = target.spec.format + more if target else ""
        self._box(0, row, "sink", name, word, "sink")

    def _draw(self, step: Step, depth: int) -> float:
        """The row that a step stands in: the middle of its inputs'."""
        if not step.inputs:
            row: float = self._row
            self._row += 1
        else:
            rows = [self._draw(one, depth + 1) for one in step.inputs]
            row = sum(rows) / len(rows)
            for one in rows:
                self._line(depth + 1, one, depth, row)
        if depth == 1:
            self._line(1, row, 0, row)
        kind = "source" if step.kind in ("stream", "static") else "step"
        kept = ", ".join(keeps_of(step.kept))
        self._box(depth, row, step.kind, step.text, f"keeps {kept}" if kept else "", kind)
        return row

    def _x(self, depth: int) -> int:
        return (self._deepest - depth) * (_WIDE + _GAP)

    def _line(self, from_depth: int, from_row: float, to_depth: int, to_row: float) -> None:
        x1, x2 = self._x(from_depth) + _WIDE, self._x(to_depth)
        y1, y2 = (28 + r * (_HIGH + 12) + _HIGH / 2 for r in (from_row, to_row))
        half = (x1 + x2) / 2
        self._parts.append(f'<path d="M{x1} {y1:g}C{half:g} {y1:g} {half:g} {y2:g} {x2} {y2:g}"/>')

    def _box(self, depth: int, row: float, title: str, text: str, note: str, kind: str) -> None:
        x, y = self._x(depth), 28 + row * (_HIGH + 12)
        lines = "".join(
            f'<text class="{css}" x="{x + 10}" y="{y + 18 + 17 * n:g}">{escape(_fit(one))}'
            f"<title>{escape(one)}</title></text>"
            for n, (css, one) in enumerate((("k", title), ("", text), ("n", note)))
            if one
        )
        self._parts.append(
            f'<g class="{kind}"><rect x="{x}" y="{y:g}" width="{_WIDE}" height="{_HIGH}" rx="6"/>'
            f"{lines}</g>"
        )


def _fit(text: str, most: int = 32) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _depth(step: Step | None) -> int:
    if step is None:
        return 0
    return 1 + max((_depth(one) for one in step.inputs), default=0)
