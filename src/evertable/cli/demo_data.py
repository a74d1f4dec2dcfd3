"""The rows of the demo: made up from a seed, a little out of order, some clicks sent twice."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

_A_STEP = 20  # impressions
_MOST_DISORDER = 1.5  # seconds; well inside the watermark's 3
CLOSING_AD = 0


class Feed:
    """Writes one file of impressions and one of clicks a step, each whole at once."""

    def __init__(self, folder: str, seed: int = 7) -> None:
        self._random = random.Random(seed)  # noqa: S311 (made-up data)
        self._folder = folder
        self._step = 0
        self._impression = 0
        self._pending: list[dict[str, object]] = []
        for name in ("impressions", "clicks"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)

    def step(self, now: datetime) -> None:
        impressions: list[dict[str, object]] = []
        clicks, self._pending = self._pending, []
        for _ in range(_A_STEP):
            self._impression += 1
            shown = now - timedelta(seconds=self._random.uniform(0, _MOST_DISORDER))
            cost = f"{self._random.uniform(0.1, 2):.2f}"
            impressions.append(
                {
                    "impression": self._impression,
                    "ad": self._random.randrange(10),
                    "cost": cost,
                    "shown_at": _text(shown),
                }
            )
            if self._random.random() < 0.3:
                click = {"impression": self._impression, "clicked_at": _text(now)}
                self._pending += [click, click] if self._random.random() < 0.1 else [click]
        self._random.shuffle(impressions)
        self._write("impressions", impressions)
        self._write("clicks", clicks)

    def close(self, now: datetime) -> datetime:
        """Two rows from the future: every window that is open closes. When they are."""
        future = now + timedelta(hours=1)
        self._write("clicks", self._pending)
        self._step += 1
        row = {"impression": -1, "ad": CLOSING_AD, "cost": "0.00", "shown_at": _text(future)}
        self._write("impressions", [row])
        self._write("clicks", [{"impression": -2, "clicked_at": _text(future)}])
        return future

    def _write(self, name: str, rows: Iterable[dict[str, object]]) -> None:
        self._step += 1
        text = "".join(json.dumps(row) + "\n" for row in rows)
        draft = Path(self._folder, f".draft-{name}")
        draft.write_text(text)
        draft.replace(Path(self._folder, name, f"{self._step:05}.json"))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
