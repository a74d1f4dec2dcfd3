"""Tests in YAML: steps of push, run, advance, crash, restart and expect, collected by pytest.

pipeline: ../ads.yaml          # that of the folder above unless named
day: 2026-01-01
tests:
  a late click is not counted:
    - push: {clicks: [{ad: a, clicked_at: "12:04"}]}
    - expect:
        clicks_per_ad: {rows: [...], watermark: "12:10:00", dropped_by_watermark: 1}
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evertable.define.yaml_tree import Tree, parse
from evertable.errors import DefinitionError, EvertableError, Finding
from evertable.location import Location
from evertable.model.names import did_you_mean
from evertable.run.faults import Fault
from evertable.testing.finding import nearest
from evertable.testing.times import Day

if TYPE_CHECKING:
    from evertable.testing.under_test import PipelineUnderTest

_AT_TOP = ("pipeline", "day", "tests")
_EXPECTED = ("rows", "changes", "watermark", "dropped_by_watermark", "state", "batches")
_FAULTS = {fault.value: fault for fault in Fault}


def has_tests(path: Path) -> bool:
    try:
        return any(line.startswith("tests:") for line in path.read_text().splitlines())
    except (OSError, UnicodeDecodeError):
        return False


class YamlFile(pytest.File):
    """A file of tests."""

    def collect(self) -> Iterator[pytest.Item]:
        tree = parse(str(self.path), self.path.read_text())
        given = tree.value
        if tree.findings:
            raise DefinitionError(*tree.findings)
        if not isinstance(given, dict) or not isinstance(given.get("tests"), dict):
            raise _wrong("`tests:` holds tests by their names", tree.place(("tests",)))
        for key in given:
            if key not in _AT_TOP:
                hint = did_you_mean(key, _AT_TOP) or f"one of {', '.join(_AT_TOP)}"
                raise _wrong(f'unknown key "{key}"; {hint}', tree.place((key,)))
        file = given.get("pipeline")
        pipeline = (
            str(self.path.parent / file)
            if isinstance(file, str)
            else nearest(self.path.parent, self.config.rootpath)
        )
        for name, steps in given["tests"].items():
            if not isinstance(steps, list):
                raise _wrong(f'test "{name}" is no list of steps', tree.place(("tests", name)))
            story = Story(pipeline, steps, given.get("day"), partial(_place, tree, name))
            yield YamlTest.from_parent(self, name=name, callobj=story.test)


def _place(tree: Tree, name: str, number: int) -> Location:
    return tree.place(("tests", name, number))


class YamlTest(pytest.Function):
    """One test: its steps, one after the other."""

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        error = excinfo.value
        if isinstance(error, EvertableError | AssertionError):
            place = getattr(error, "place", None)
            return f"{place}: {error}" if place else str(error)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class Story:
    """What the steps of a test do to a pipeline."""

    def __init__(
        self, file: str, steps: list[Any], day: Any, place: Callable[[int], Location]
    ) -> None:
        self._file = file
        self._steps = steps
        self._day = day
        self._place = place
        self._ran = True
        self._pipeline: Any = None

    def test(self, pipeline_of: Callable[[str], PipelineUnderTest]) -> None:
        """What pytest runs."""
        self._pipeline = pipeline_of(self._file)
        if self._day is not None:
            day = dt.date.fromisoformat(str(self._day))
            self._pipeline.day = Day(day, self._pipeline.day.zone)
        for number, step in enumerate(self._steps):
            try:
                self._step(step)
            except (AssertionError, EvertableError) as e:
                e.place = self._place(number)  # type: ignore[union-attr]
                raise

    def _step(self, step: Any) -> None:
        verbs = {
            "push": self._push,
            "static": self._static,
            "run": self._run,
            "advance": self._advance,
            "crash": self._crash,
            "restart": self._restart,
            "expect": self._expect,
            "same_as_batch": self._same_as_batch,
        }
        if not isinstance(step, Mapping) or len(step) != 1:
            raise _wrong("a step is one of " + ", ".join(verbs))
        ((verb, given),) = step.items()
        if verb not in verbs:
            hint = did_you_mean(str(verb), verbs) or f"one of {', '.join(verbs)}"
            raise _wrong(f'unknown step "{verb}"; {hint}')
        do: Any = verbs[verb]
        do(given)

    def _push(self, given: Mapping[str, Any]) -> None:
        for stream, rows in given.items():
            self._pipeline.push(stream, rows)
        self._ran = False

    def _static(self, given: Mapping[str, Any]) -> None:
        for name, rows in given.items():
            self._pipeline.static(name, rows)

    def _run(self, given: str) -> None:
        if given not in ("batch", "until idle"):
            raise _wrong('run: "batch" or "until idle"')
        self._pipeline.run_batch() if given == "batch" else self._pipeline.run_until_idle()
        self._ran = True

    def _advance(self, given: str) -> None:
        self._pipeline.advance(given)
        self._ran = True

    def _crash(self, given: str) -> None:
        if given not in _FAULTS:
            raise _wrong(f"crash: one of {', '.join(_FAULTS)}")
        with self._pipeline.crash(_FAULTS[given]):
            self._pipeline.run_until_idle()
        self._ran = True

    def _restart(self, given: str | None) -> None:
        self._pipeline.restart(given)
        self._ran = False

    def _expect(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        tables = {name: self._pipeline.table(name) for name in given}
        if not self._ran:
            self._pipeline.run_until_idle()
            self._ran = True
        for name, expected in given.items():
            for what, value in expected.items():
                if what not in _EXPECTED:
                    hint = did_you_mean(what, _EXPECTED) or f"one of {', '.join(_EXPECTED)}"
                    raise _wrong(f'expect: table "{name}" has no "{what}"; {hint}')
                self._compare(tables[name], what, value)

    def _compare(self, table: Any, what: str, expected: Any) -> None:
        found: Any = getattr(table, what)
        if what == "rows" and expected:
            found = table.rows(*_columns(table.rows(), expected))
        found = found() if callable(found) else found
        if isinstance(expected, list) and found != expected:
            lines = found.explained(expected)
            raise AssertionError("\n  ".join([f'{what} of "{table.name}" differ', *lines]))
        if not isinstance(expected, list) and found != expected:
            raise AssertionError(f'{what} of "{table.name}" is {found!r}, not {expected!r}')

    def _same_as_batch(self, given: str) -> None:
        from evertable.testing.same_as_batch import assert_same_as_batch

        assert_same_as_batch(self._pipeline.table(given))
        self._ran = True


def _columns(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """Columns that no expected row names are not compared."""
    named = {name for row in expected for name in row}
    return [name for name in rows[0] if name in named] if rows else []


def _wrong(message: str, place: Location | None = None) -> DefinitionError:
    return DefinitionError(Finding("TEST_INVALID", message, place))
