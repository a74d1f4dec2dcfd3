"""What a test of a pipeline takes, once Spark is warm."""

from __future__ import annotations

import statistics
import time

import pytest

from crashes import PIPELINE


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_sixty_windowed_tests_take_less_than_a_minute(pipeline_of):
    def one_test():
        begun = time.monotonic()
        p = pipeline_of(PIPELINE)
        t = p.table("t")
        p.push("s", [{"k": "a", "at": "12:01"}])
        p.push("s", [{"k": "z", "at": "12:30"}])
        p.run_until_idle()
        assert t.watermark == "12:20:00"
        p.push("s", [{"k": "a", "at": "12:02"}])
        p.run_until_idle()
        assert t.rows("k", "n") == [{"k": "a", "n": 1}]
        p.close()
        return time.monotonic() - begun

    for _ in range(10):
        one_test()
    # Other users of the machine only ever make it slower: one of four rounds has to show it.
    rounds = []
    while len(rounds) < 4:
        took = [one_test() for _ in range(60)]
        rounds.append((statistics.median(took), sum(took)))
        if rounds[-1][0] < 0.7 and rounds[-1][1] < 60:
            return
    raise AssertionError(f"median and sum of each round: {rounds}")
