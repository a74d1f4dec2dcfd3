"""Long proofs. `--short` runs fewer of the same."""

from __future__ import annotations

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests"))

from kit import spark

__all__ = ["spark"]


@pytest.fixture(scope="session")
def evertable_spark(spark):
    """Pipelines under test run on the one session of all proofs."""
    return lambda pipeline: spark


@pytest.fixture
def short(request):
    return request.config.getoption("--short")


def pytest_addoption(parser):
    parser.addoption("--short", action="store_true", help="a few of each kind of fault")


def pytest_generate_tests(metafunc):
    """`many` is a list in the test's module: all of it, or with --short every n-th."""
    many = getattr(metafunc.module, "MANY", {}).get(metafunc.function.__name__)
    if many:
        names, values, every = many
        if metafunc.config.getoption("--short"):
            values = values[::every]
        metafunc.parametrize(names, values, ids=lambda v: str(getattr(v, "name", v)))
