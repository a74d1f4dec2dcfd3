"""A trigger of the model, as Spark's writer takes it."""

from __future__ import annotations

from typing import Any

from evertable.model.durations import millis
from evertable.model.pipeline import Trigger


def triggered(writer: Any, trigger: Trigger) -> Any:
    """The writer, with this trigger; Spark's default needs none."""
    if trigger.kind == "default":
        return writer
    if trigger.kind == "available_now":
        return writer.trigger(availableNow=True)
    if trigger.kind == "once":
        return writer.trigger(once=True)
    names = {
        "processing_time": "processingTime",
        "continuous": "continuous",
        "real_time": "realTime",
    }
    assert trigger.interval is not None
    return writer.trigger(**{names[trigger.kind]: f"{millis(trigger.interval)} milliseconds"})
