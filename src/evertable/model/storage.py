"""Where a pipeline keeps what: the folders below its `storage`. Paths only, nothing is touched."""

from __future__ import annotations

import os
from dataclasses import dataclass

from evertable.model.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Storage:
    """`<storage>/<pipeline>/…`"""

    folder: str

    @classmethod
    def of(cls, pipeline: Pipeline) -> Storage:
        base = os.path.normpath(os.path.join(pipeline.root, os.path.expanduser(pipeline.storage)))
        return cls(os.path.join(base, pipeline.name))

    @property
    def logs(self) -> str:
        return os.path.join(self.folder, "logs")

    @property
    def schemas(self) -> str:
        return os.path.join(self.folder, "schemas")

    @property
    def tables(self) -> str:
        return os.path.join(self.folder, "tables")

    def table_file(self, table: str) -> str:
        """The SQLite file of an embedded table."""
        return os.path.join(self.tables, f"{table}.sqlite")

    def ledger_file(self, table: str, sink: int) -> str:
        """The ledger that is kept here for one of a table's sinks."""
        return os.path.join(self.folder, "ledgers", f"{table}-{sink}.sqlite")

    def checkpoint(self, table: str) -> str:
        return os.path.join(self.folder, "checkpoints", table)

    def identities(self, table: str) -> str:
        """The ids of the topics that a table has read."""
        return os.path.join(self.folder, "sources", f"{table}.json")

    def manifests(self, table: str) -> str:
        """What a table was, each time it was started as another one."""
        return os.path.join(self.folder, "manifests", table)

    def answers(self, table: str) -> str:
        """The way that was chosen for a table whose edit asks for one."""
        return os.path.join(self.folder, "answers", f"{table}.json")

    def lock(self, table: str) -> str:
        return os.path.join(self.folder, "locks", f"{table}.lock")
