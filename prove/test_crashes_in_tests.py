"""Crashes that tests ask for are the same each time: two hundred of them, over all moments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evertable.testing import Fault

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


@pytest.mark.parametrize("point", list(Fault))
def test_two_hundred_crashes_have_one_outcome(pipeline_of, point, short):
    from crashes import outcomes

    assert len(outcomes(pipeline_of, point, 5 if short else 67)) == 1
