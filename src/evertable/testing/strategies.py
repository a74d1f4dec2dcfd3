"""Random streams, for hypothesis: disorder up to a bound, duplicates, any cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from evertable.model.durations import millis
from evertable.testing.times import Day

Row = dict[str, Any]
Test = TypeVar("Test", bound=Callable[..., Any])


def times(start: str, end: str, *, day: Day | None = None) -> SearchStrategy[str]:
    """Times of a day, to the second: `times("12:00", "13:00")`."""
    day = day or Day()
    first, last = day.millis(start) // 1000, day.millis(end) // 1000
    return st.integers(first, last).map(lambda second: day.shown_millis(second * 1000))


@st.composite
def streams(
    draw: st.DrawFn,
    columns: Mapping[str, SearchStrategy[Any]],
    *,
    time: str | None = None,
    disorder: str = "0 seconds",
    duplicates: bool = False,
    most: int = 25,
    day: Day | None = None,
) -> list[list[Row]]:
    """A list of batches of rows. With `time` rows come in its order, but for less than `disorder`:
    none of them is later than a watermark with that delay. With `duplicates` some come twice."""
    day = day or Day()
    rows = draw(st.lists(st.fixed_dictionaries(dict(columns)), min_size=1, max_size=most))
    if duplicates:
        again = draw(st.lists(st.sampled_from(rows), max_size=max(1, most // 4)))
        rows = rows + [dict(row) for row in again]
    if time is not None:
        late = st.integers(0, max(0, millis(disorder) - 1))
        arrivals = [(day.millis(row[time]) + draw(late), n) for n, row in enumerate(rows)]
        rows = [rows[n] for _, n in sorted(arrivals)]
    return _cut(rows, draw(st.sets(st.integers(1, max(1, len(rows) - 1)), max_size=6)))


def _cut(rows: list[Row], places: set[int]) -> list[list[Row]]:
    edges = [0, *sorted(place for place in places if place < len(rows)), len(rows)]
    return [rows[a:b] for a, b in pairwise(edges)]


def examples(number: int) -> Callable[[Test], Test]:
    """So many random streams, for a test that begins with `pipeline.reset()`."""
    return settings(
        max_examples=number,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
