"""Where a table's rows go: one seam, one module a family."""

from evertable.model.ledger import LedgerEntry
from evertable.sinks.registry import SINKS, open_sink
from evertable.sinks.seam import Session, Sink

__all__ = ["SINKS", "LedgerEntry", "Session", "Sink", "open_sink"]
