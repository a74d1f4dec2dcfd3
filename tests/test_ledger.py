"""When sink and checkpoint do not tell the same story: refused by name. Pure, no Spark."""

from __future__ import annotations

import pytest

from evertable.model.ledger import LedgerEntry
from evertable.run.ledger import judge


def story(newest, last_offset, last_commit, digest="d", query="q"):
    entry = LedgerEntry("q", newest, "d") if newest is not None else None
    finding = judge("t", None, entry, query, last_offset, last_commit, lambda b: digest)
    return finding.code if finding else "fits"


@pytest.mark.parametrize(
    ("newest", "last_offset", "last_commit", "verdict"),
    [
        (None, -1, -1, "fits"),  # the first start
        (None, 0, -1, "fits"),  # batch 0 was begun, nothing was written
        (0, 0, -1, "fits"),  # written, and Spark died before its commit
        (0, 0, 0, "fits"),
        (5, 6, 5, "fits"),
        (6, 6, 5, "fits"),
        (None, 3, 3, "SINK_BEHIND"),  # ledger deleted
        (2, 5, 5, "SINK_BEHIND"),  # target rolled back
        (4, 5, 5, "SINK_BEHIND"),
        (7, 5, 5, "SINK_AHEAD"),  # checkpoint rolled back
        (6, 5, 5, "SINK_AHEAD"),
        (7, 7, 5, "CHECKPOINT_DAMAGED"),  # a batch was begun before the last one was finished
        (-1, 3, -1, "CHECKPOINT_DAMAGED"),
        (0, -1, -1, "SINK_AHEAD"),  # checkpoint emptied, its id kept
    ],
)
def test_verdicts(newest, last_offset, last_commit, verdict):
    assert story(newest, last_offset, last_commit) == verdict


def test_the_same_batch_with_other_rows_is_ahead():
    assert story(5, 5, 5, digest="other") == "SINK_AHEAD"
    assert story(6, 6, 5, digest="other") == "SINK_AHEAD"


def test_offsets_that_the_log_has_no_more_prove_nothing():
    assert story(5, 5, 5, digest=None) == "fits"


def test_another_query_is_refused_by_name():
    assert story(5, 5, 5, query="another") == "TARGET_OWNED"


def test_missing_batches_are_named():
    finding = judge("t", None, LedgerEntry("q", 2, "d"), "q", 5, 5, lambda b: "d")
    assert "batches 3 to 5 are missing" in finding.detail
