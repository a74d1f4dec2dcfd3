"""How many different keys there will be among more rows than were seen.

Keys are taken to follow Zipf's law: the i-th most frequent one comes in a share of rows that falls
as a power of i, up to some number of keys. Every number of keys that explains the sample is kept,
with a weight: what they say of more rows is the answer, and its band.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_EXACT = 1_000  # ranks that stand alone; those after them are taken together
_MOST_KEYS = 1e9
_STEPEST = 4.0
_AS_GOOD = 6.0  # how much worse than the best a fit may be
_LARGEST_COUNT = 64  # keys that came more often say nothing of those that did not come


@dataclass(frozen=True)
class Zipf:
    """Shares of rows: `shares[i]` is that of each of `keys[i]` keys."""

    keys: Any
    shares: Any

    def distinct(self, rows: float) -> float:
        """How many keys are expected among so many rows."""
        return float(np.sum(self.keys * -np.expm1(-rows * self.shares)))

    def of_each(self, rate: float, function: Any) -> float:
        """The sum over all keys of a function of their rows a second."""
        return float(np.sum(self.keys * function(rate * self.shares)))


@dataclass(frozen=True)
class Keys:
    """What a sample says of keys: the laws that explain it, each with its weight."""

    laws: tuple[tuple[float, Zipf], ...]

    def about(self, count: Callable[[Zipf], float]) -> tuple[float, float, float]:
        """(about, least, most) of what is counted by the laws."""
        counts = np.array([max(count(law), 1e-9) for _, law in self.laws])
        weights = np.array([weight for weight, _ in self.laws])
        about = float(np.exp(np.sum(weights * np.log(counts)) / np.sum(weights)))
        return about, float(counts.min()), float(counts.max())


def zipf(number: float, exponent: float) -> Zipf:
    """Zipf's law for so many keys."""
    exact = np.arange(1, min(number, _EXACT) + 1, dtype=float)
    keys, ranks = np.ones_like(exact), exact
    if number > _EXACT:
        edges = np.geomspace(_EXACT + 1, number + 1, 60)
        keys = np.concatenate([keys, np.diff(edges)])
        ranks = np.concatenate([ranks, np.sqrt(edges[1:] * edges[:-1]) - 0.5])
    weights = ranks**-exponent
    return Zipf(keys, weights / np.sum(weights * keys))


def uniform(number: float) -> Keys:
    """So many keys, each as frequent as the other; what is taken where nothing was sampled."""
    return Keys(((1.0, zipf(number, 0.0)),))


def fit(counts: Mapping[int, int]) -> Keys:
    """The laws that explain how many keys came how often: {1: keys that came once, …}."""
    rows = sum(often * number for often, number in counts.items())
    distinct = sum(counts.values())
    near = distinct * np.linspace(1, 2, 41)  # most keys may have been seen
    far = np.geomspace(2 * distinct, max(_MOST_KEYS, 2 * distinct), 160)
    tried = []
    for number in np.unique(np.concatenate([near, far]).round()):
        law = _with_as_many(float(number), rows, distinct)
        if law is not None:
            tried.append((_misfit(law, rows, counts), law))
    if not tried:  # more keys than an even spread would give
        return uniform(distinct)
    least = min(misfit for misfit, _ in tried)
    return Keys(
        tuple(
            (float(np.exp((least - misfit) / 2)), law)
            for misfit, law in tried
            if misfit <= least + _AS_GOOD
        )
    )


def _with_as_many(number: float, rows: float, distinct: float) -> Zipf | None:
    """The law for so many keys that gives as many of them as were seen; None where none does."""
    low, high = 0.0, _STEPEST
    if zipf(number, low).distinct(rows) < distinct * 0.999:
        return None
    if zipf(number, high).distinct(rows) > distinct:
        return None
    for _ in range(24):
        middle = (low + high) / 2
        if zipf(number, middle).distinct(rows) > distinct:
            low = middle
        else:
            high = middle
    return zipf(number, (low + high) / 2)


def _misfit(law: Zipf, rows: float, counts: Mapping[int, int]) -> float:
    """How far what came once, twice, … is from what the law expects."""
    expected = rows * law.shares
    chance = law.keys * np.exp(-expected)
    total, seen, due, until = 0.0, 0.0, 0.0, 1
    for often in range(1, _LARGEST_COUNT + 1):
        chance = chance * expected / often
        seen += counts.get(often, 0)
        due += float(np.sum(chance))
        if often == until:  # 1, 2, 3-4, 5-8, …
            # Real keys follow no law to the per cent.
            total += (seen - due) ** 2 / (due + (0.03 * due) ** 2 + 1)
            seen, due, until = 0.0, 0.0, until * 2
    return total
