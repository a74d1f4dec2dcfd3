"""Tests of pipelines: what their authors import. The fixtures come with the pytest plugin."""

from evertable.run.faults import Fault
from evertable.testing.processor import ProcessorUnderTest
from evertable.testing.same_as_batch import assert_same_as_batch
from evertable.testing.times import Day

__all__ = ["Day", "Fault", "ProcessorUnderTest", "assert_same_as_batch"]
