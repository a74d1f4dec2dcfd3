"""What every test file may use."""

import pytest

from kit import broker, kafka, kit, postgres, spark

__all__ = ["broker", "evertable_spark", "kafka", "kit", "postgres", "spark"]


@pytest.fixture(scope="session")
def evertable_spark(spark):
    """Pipelines under test run on the one session of all tests."""
    return lambda pipeline: spark
