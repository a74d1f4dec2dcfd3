"""Which tables, views and branches of CASE the tests of a run have touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from evertable.model.pipeline import Pipeline

if TYPE_CHECKING:
    from evertable.testing.table_under_test import TableUnderTest
    from evertable.testing.under_test import PipelineUnderTest


@dataclass
class Coverage:
    """Of one pipeline: names and texts only, so that processes can tell it each other."""

    tables: dict[str, str]  # name -> place, of all that there are
    views: dict[str, str]
    tables_run: set[str] = field(default_factory=set)
    views_read: set[str] = field(default_factory=set)
    taken: dict[str, set[int]] = field(default_factory=dict)  # CASE -> branches some row has taken
    branches: dict[str, int] = field(default_factory=dict)  # CASE -> how many there are

    @classmethod
    def of(cls, model: Pipeline) -> Coverage:
        return cls(
            {table.name: str(table.location) for table in model.tables},
            {view.name: str(view.location) for view in model.views},
        )

    def add(self, other: Coverage) -> None:
        """What tests in another process have touched."""
        self.tables_run |= other.tables_run
        self.views_read |= other.views_read
        self.branches |= other.branches
        for text, taken in other.taken.items():
            self.taken.setdefault(text, set()).update(taken)


_KEY = pytest.StashKey[dict[str, Coverage]]()
_TOLD = "evertable_coverage"


def touched_in(config: pytest.Config) -> Callable[[TableUnderTest], None]:
    """Called with each table that a test asks for."""

    def touched(table: TableUnderTest) -> None:
        if config.getoption("--coverage-of-tables"):
            of(config, table.pipeline).tables_run.add(table.name)

    return touched


def of(config: pytest.Config, pipeline: PipelineUnderTest) -> Coverage:
    known = config.stash.setdefault(_KEY, {})
    return known.setdefault(pipeline.model.name, Coverage.of(pipeline.model))


def note_branches(config: pytest.Config, pipeline: PipelineUnderTest) -> None:
    """Compute each table that ran as a batch, and note which branches its rows took."""
    from evertable.spark.branches import branches_taken
    from evertable.testing.same_as_batch import batch_frames

    found = of(config, pipeline)
    for table in pipeline.tables_that_ran():
        frames, frame = batch_frames(table)
        found.views_read |= frames.views_used
        for branch in branches_taken(frame):
            found.branches[branch.text] = branch.number
            found.taken.setdefault(branch.text, set()).update(branch.taken)


def tell(config: pytest.Config) -> None:
    """At the end of a worker of pytest-xdist: hand over what its tests have touched."""
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        known = config.stash.get(_KEY, {})
        output[_TOLD] = {name: asdict(coverage) for name, coverage in known.items()}


def hear(config: pytest.Config, output: dict[str, Any]) -> None:
    """In the process that speaks for all workers: add what one of them has told."""
    known = config.stash.setdefault(_KEY, {})
    for name, told in output.get(_TOLD, {}).items():
        coverage = Coverage(**told)
        known.setdefault(name, Coverage(coverage.tables, coverage.views)).add(coverage)


def summary(config: pytest.Config) -> Iterator[str]:
    """What the end of the run says."""
    for name, coverage in config.stash.get(_KEY, {}).items():
        yield f"coverage of {name}"
        lines = list(missing(coverage))
        yield from lines or ["  every table, view and branch of CASE was touched"]


def missing(coverage: Coverage) -> Iterator[str]:
    for name, place in coverage.tables.items():
        if name not in coverage.tables_run:
            yield f'  table "{name}" ({place}): no test runs it'
    for name, place in coverage.views.items():
        if name not in coverage.views_read:
            yield f'  view "{name}" ({place}): no table that a test runs reads it'
    for text, number in coverage.branches.items():
        never = [n for n in range(number) if n not in coverage.taken[text]]
        for n in never:
            branch = "ELSE" if n == number - 1 else f"WHEN {n + 1}"
            yield f"  {text}: no row took {branch}"
