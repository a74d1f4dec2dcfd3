"""Two ways of doing one thing, in turn, on one machine: ratios, not seconds, are the result."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SUBREAPER = 36  # prctl: a JVM whose Python has ended becomes our child, and its CPU is counted


@dataclass(frozen=True)
class Measured:
    wall: float
    cpu: float
    value: float  # what the way itself reports, if anything


def run(command: list[str], folder: Path, done: Callable[[], float | None]) -> Measured:
    """Start a command; when `done` gives a number, end its whole process tree."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    begun = time.monotonic()
    with open(folder / "output.txt", "ab") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    value = None
    while value is None:
        value = done()
        if process.poll() is not None and value is None:
            sys.exit(f"{command} ended early: see {folder}/output.txt")
        time.sleep(0.002)
    wall = time.monotonic() - begun
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return Measured(wall, _reap(), value)


def run_to_end(command: list[str], folder: Path) -> Measured:
    """Start a command and wait until it and all that it started have ended."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    begun = time.monotonic()
    with open(folder / "output.txt", "ab") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - begun
    if status:
        sys.exit(f"{command} failed: see {folder}/output.txt")
    return Measured(wall, usage.ru_utime + usage.ru_stime + _reap(), 0)


def _reap() -> float:
    """CPU seconds of everything that was started and has ended."""
    total = 0.0
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return total
        total += usage.ru_utime + usage.ru_stime


def report(
    name: str,
    ours: list[Measured],
    theirs: list[Measured],
    of: str,
    *,
    most: float | None = None,
    bound: float | None = None,
) -> str:
    """One line: the median ratio, its range, its upper 95% bound, and what they may be at most."""
    ratios = sorted(getattr(a, of) / getattr(b, of) for a, b in zip(ours, theirs, strict=True))
    middle, upper = statistics.median(ratios), upper_bound(ratios)
    left = statistics.median(getattr(m, of) for m in ours)
    right = statistics.median(getattr(m, of) for m in theirs)
    verdict = _verdict("median", middle, most) + _verdict("bound", upper, bound)
    return (
        f"{name:<30} {of:<5} ratio {middle:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}; 95% bound "
        f"{upper:.3f}) of {left:.3f} s and {right:.3f} s, {len(ratios)} pairs{verdict}"
    )


def upper_bound(ratios: list[float]) -> float:
    """The one-sided upper 95% bound of the mean ratio, of ratios that are log-normal."""
    logs = [math.log(r) for r in ratios]
    if len(logs) < 2:
        return math.inf
    spread = statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(statistics.mean(logs) + _STUDENT.get(len(logs), 1.65) * spread)


# Student's t, one-sided 95%, by the number of values.
_STUDENT = {
    2: 6.31, 3: 2.92, 4: 2.35, 5: 2.13, 6: 2.02, 7: 1.94, 8: 1.90, 9: 1.86, 10: 1.83,
    11: 1.81, 12: 1.80, 13: 1.78, 14: 1.77, 15: 1.76,
}  # fmt: skip


def _verdict(what: str, found: float, limit: float | None) -> str:
    if limit is None:
        return ""
    return f"; {what} at most {limit}: {'met' if found <= limit else 'MISSED'}"
