"""A forecast from one row in a hundred is within 25% of the state that Spark then holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent.parent / "bench/forecast.py"


def test_state_is_foretold(short):
    runs, part = ("1", "8") if short else ("10", "1")
    done = subprocess.run([sys.executable, BENCH, runs, part], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    verdicts = [line for line in done.stdout.splitlines() if line.startswith("forecast, ")]
    assert len(verdicts) == 6
    assert all(line.endswith(": met") for line in verdicts), done.stdout
