"""What a table stands on while it runs: the world outside, or a test that plays it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evertable.sinks.seam import Sink
from evertable.spark.frames import Opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def _begin(writer: DataStreamWriter, frame: DataFrame) -> StreamingQuery:
    return writer.start()


@dataclass(frozen=True)
class Stage:
    """Where rows come from, where they go to, and who says when the next batch begins."""

    opened: Opened | None = None  # reads each stream instead of its source
    sink: Sink | None = None  # takes the rows instead of the table's sinks
    begin: Callable[[DataStreamWriter, DataFrame], StreamingQuery] = _begin


WORLD = Stage()
