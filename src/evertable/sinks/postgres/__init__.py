"""Postgres: data and ledger in one transaction, by ADBC's binary ingest."""

from evertable.sinks.postgres.sink import CAPABILITIES, PostgresSink

__all__ = ["CAPABILITIES", "PostgresSink"]
