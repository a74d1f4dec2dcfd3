"""Draws docs/bench.svg from the ratios in bench/RESULTS.md.

python bench/plot.py
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
RATIO = re.compile(
    r"^(?P<name>.+?)\s+(?P<of>value|wall|cpu)\s+ratio (?P<middle>[\d.]+) \((?P<low>[\d.]+) to "
    r"(?P<high>[\d.]+);.*?median at most (?P<most>[\d.]+)"
)
WIDTH, LEFT, RIGHT, ROW, TOP = 860, 300, 90, 26, 44
MOST = 1.8  # of what is compared with; a bar that would be longer is cut


@dataclass(frozen=True)
class Bar:
    """One ratio: ours to theirs, its range over the pairs, and how much it may be."""

    name: str
    middle: float
    low: float
    high: float
    most: float


def bars(text: str) -> list[Bar]:
    found = [m for line in text.splitlines() if (m := RATIO.match(line))]
    words = {"wall": "time", "value": "time of a batch", "cpu": "CPU"}
    return [
        Bar(
            f"{m['name'].strip()}, {words[m['of']]}",
            *(float(m[k]) for k in ("middle", "low", "high", "most")),
        )
        for m in found
    ]


def x(ratio: float) -> float:
    return LEFT + min(ratio, MOST) / MOST * (WIDTH - LEFT - RIGHT)


def svg(found: list[Bar]) -> str:
    height = TOP + ROW * len(found) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>What Evertable takes, as a share of what it is compared with</title>",
        "<style>text{fill:#24292f}.bar{fill:#2f81b7}.line{stroke:#8c959f}.most{stroke:#c0392b;"
        "stroke-width:2}.range{stroke:#0b3d5c;stroke-width:1.5}@media(prefers-color-scheme:dark)"
        "{text{fill:#e6edf3}.range{stroke:#a5d6ff}.line{stroke:#6e7681}}</style>",
        '<text x="10" y="18" font-weight="600">Share of what it is compared with: '
        "shorter is better</text>",
        f'<text x="{x(1):.0f}" y="36" text-anchor="middle">the same</text>',
        f'<line class="line" x1="{x(1):.0f}" x2="{x(1):.0f}" y1="{TOP - 4}" y2="{height - 24}"/>',
    ]
    for number, bar in enumerate(found):
        y = TOP + number * ROW
        middle = y + ROW / 2 - 3
        lines += [
            f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.name)}</text>',
            f'<rect class="bar" x="{LEFT}" y="{y}" width="{x(bar.middle) - LEFT:.1f}" '
            f'height="{ROW - 8}" rx="2"/>',
            f'<line class="range" x1="{x(bar.low):.1f}" x2="{x(bar.high):.1f}" y1="{middle}" '
            f'y2="{middle}"/>',
            f'<line class="most" x1="{x(bar.most):.1f}" x2="{x(bar.most):.1f}" y1="{y - 2}" '
            f'y2="{y + ROW - 6}"/>',
            f'<text x="{WIDTH - RIGHT + 10}" y="{middle + 4}">{bar.middle:.2f}</text>',
        ]
    lines.append(
        f'<text x="10" y="{height - 6}" font-size="11">bar: median of the pairs; thin line: their '
        "range; red: what it may be at most</text></svg>"
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    found = bars((HERE / "RESULTS.md").read_text())
    (HERE.parent / "docs/bench.svg").write_text(svg(found))
    print(f"{len(found)} ratios drawn")


if __name__ == "__main__":
    main()
