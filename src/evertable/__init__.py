"""Evertable: streaming tables on Apache Spark Structured Streaming.

import evertable as et

ads = et.Pipeline("ads")
ads.stream("clicks", format="json", path="data/", schema="ad STRING, at TIMESTAMP")
ads.table("clicks_per_ad", sql="SELECT ad, count(*) AS n FROM clicks GROUP BY ad",
          output_mode="update")
ads.run()
"""

from evertable.define.builder import (
    available_now,
    avro,
    base64,
    call,
    continuous,
    csv,
    data_source,
    every,
    files,
    json,
    kafka,
    once,
    postgres,
    real_time,
    table,
    text,
)
from evertable.errors import EvertableError, Finding
from evertable.model.ledger import LedgerEntry
from evertable.model.pipeline import Decode, Dedup, Retain, SinkSpec, Trigger, Watermark
from evertable.pipeline import Pipeline, TableHandle

__all__ = [
    "Decode",
    "Dedup",
    "EvertableError",
    "Finding",
    "LedgerEntry",
    "Pipeline",
    "Retain",
    "SinkSpec",
    "TableHandle",
    "Trigger",
    "Watermark",
    "available_now",
    "avro",
    "base64",
    "call",
    "continuous",
    "csv",
    "data_source",
    "every",
    "files",
    "json",
    "kafka",
    "once",
    "postgres",
    "real_time",
    "table",
    "text",
]
