"""The embedded sink: one SQLite file a table, data and ledger in one transaction."""

from evertable.sinks.embedded.sink import CAPABILITIES, EmbeddedSink

__all__ = ["CAPABILITIES", "EmbeddedSink"]
