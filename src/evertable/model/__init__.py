"""What a pipeline is: frozen values, no Spark, no input or output."""

from evertable.model.capabilities import SinkCapabilities, SourceCapabilities
from evertable.model.pipeline import (
    Decode,
    Dedup,
    OutputMode,
    Pipeline,
    Query,
    SinkSpec,
    Static,
    Stream,
    Table,
    Trigger,
    View,
    Watermark,
)

__all__ = [
    "Decode",
    "Dedup",
    "OutputMode",
    "Pipeline",
    "Query",
    "SinkCapabilities",
    "SinkSpec",
    "SourceCapabilities",
    "Static",
    "Stream",
    "Table",
    "Trigger",
    "View",
    "Watermark",
]
