"""What rules judge by, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from evertable.errors import Finding
from evertable.model.capabilities import SinkCapabilities, SourceCapabilities
from evertable.model.pipeline import Pipeline, SinkSpec


@dataclass(frozen=True)
class Known:
    """What the rules judge by."""

    pipeline: Pipeline
    sources: Mapping[str, SourceCapabilities]
    sinks: Mapping[str, SinkCapabilities]

    def sink(self, spec: SinkSpec) -> SinkCapabilities | None:
        """The record of a sink, for the delivery that it is asked for."""
        record = self.sinks.get(spec.format)
        return record and record.delivering(spec.delivery)


Rule = Callable[[Known], Iterator[Finding]]
