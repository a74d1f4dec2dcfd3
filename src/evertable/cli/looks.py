"""How `evertable test` shows what pytest does: a line a test, and each failure as one finding."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Generator
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from evertable.cli.terminal import Terminal
from evertable.errors import EvertableError, Finding
from evertable.location import Location

_MARKS = {"passed": "fine", "failed": "broken", "skipped": "fact"}
_MOST_LINES = 25


class OurLooks:
    """Puts our reporter in the place of pytest's, unless somebody asks for more than it shows."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        manager = config.pluginmanager
        standard = manager.getplugin("terminalreporter")
        spread = getattr(config.option, "numprocesses", None)
        if standard is None or config.option.verbose or config.option.collectonly or spread:
            return
        manager.unregister(standard)
        manager.register(Findings())
        manager.register(Reporter(config), "terminalreporter")


class Findings:
    """Keeps what our own errors say beside what pytest makes of them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        report = yield
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, EvertableError):
            report.findings = error.findings
        return report


class Reporter(TerminalReporter):  # type: ignore[misc]  # others replace it in the same way
    """✓ a window closes when the watermark passes it                                     0.9s"""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(config, sys.stdout)
        self._terminal = Terminal.of(sys.stdout)
        self._file = ""
        self._begun = time.monotonic()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session
        self._begun = time.monotonic()

    def pytest_collection(self) -> None:
        pass

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        pass

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        file = nodeid.partition("::")[0]
        if file != self._file:
            self._file = file
            self._terminal.line(file)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests_ran = True
        category, _, _ = self.config.hook.pytest_report_teststatus(
            report=report, config=self.config
        )
        self._add_stats(category, [report])
        if report.when == "call" or report.outcome != "passed":
            mark = self._terminal.mark(_MARKS[report.outcome])
            why = _why_skipped(report)
            self._terminal.with_time(f"{mark} {title(report.nodeid)}{why}", report.duration)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        pass

    def summary_failures(self) -> None:
        for number, report in enumerate(self._not_passed()):
            if number:
                self._terminal.line()
            self._terminal.finding(finding_of(report))

    def _not_passed(self) -> list[Any]:
        return [*self.stats.get("failed", ()), *self.stats.get("error", ())]

    def summary_errors(self) -> None:
        pass

    def short_test_summary(self) -> None:
        pass

    def summary_stats(self) -> None:
        counts = [
            f"{len(self.stats[kind])} {word}"
            for kind, word in (
                ("passed", "passed"), ("failed", "failed"), ("error", "failed"),
                ("skipped", "skipped"),
            )
            if self.stats.get(kind)
        ]  # fmt: skip
        if not counts:
            return
        again = "; again: evertable test --lf" if self.stats.get("failed") else ""
        took = time.monotonic() - self._begun
        if self._not_passed():
            self._terminal.line()
        self._terminal.line(f"{', '.join(counts)} in {took:.1f}s{again}")


def title(nodeid: str) -> str:
    """A test's name as the sentence that it is.

    >>> title("tests/test_ads.py::test_late_click_is_not_counted")
    'late click is not counted'
    """
    name = nodeid.rpartition("::")[2]
    return re.sub(r"^test_", "", name).replace("_", " ") if name.startswith("test_") else name


def finding_of(report: Any) -> Finding:
    """What pytest says of a failure, as a finding."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        text, place = str(crash.message), _in_the_test(report, crash)
    else:
        text, place = str(report.longrepr), Location(report.nodeid.partition("::")[0])
        told = re.match(r"(?P<file>\S+):(?P<line>\d+): (?P<text>.*)", text, re.DOTALL)
        if told:
            place, text = Location(_short(told["file"]), int(told["line"])), told["text"]
    ours = getattr(report, "findings", ())
    if ours:
        first = ours[0]
        detail = "\n".join(filter(None, [first.detail, first.spark, *map(str, ours[1:])]))
        return Finding("TEST_FAILED", str(first), place, detail, first.hint)
    lines = text.removeprefix("AssertionError: ").splitlines() or [""]
    detail = "\n".join(lines[1:_MOST_LINES])
    return Finding("TEST_FAILED", lines[0], place, detail=detail, hint="-v shows the whole story")


def _in_the_test(report: Any, crash: Any) -> Location:
    """The last line of the test's own file that led there."""
    file = report.nodeid.partition("::")[0]
    found = Location(_short(crash.path), crash.lineno)
    for entry in getattr(report.longrepr.reprtraceback, "reprentries", ()):
        at = getattr(entry, "reprfileloc", None)
        if at is not None and _short(at.path) == file:
            found = Location(file, at.lineno)
    return found


def _why_skipped(report: pytest.TestReport) -> str:
    if report.outcome != "skipped" or not isinstance(report.longrepr, tuple):
        return ""
    return f" ({str(report.longrepr[2]).removeprefix('Skipped: ')})"


def _short(path: str) -> str:
    return os.path.relpath(path) if os.path.isabs(path) else path
