"""Schemas of streams: given, or inferred once and then kept, so that a restart sees the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evertable.model.capabilities import SourceCapabilities
from evertable.model.pipeline import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class SchemaStore:
    """Inferred schemas in a folder; `check` reads them there and adds none (`keep=False`)."""

    def __init__(self, folder: str, *, keep: bool = True) -> None:
        self._folder = folder
        self._keeps = keep
        self._inferred: dict[str, StructType] = {}

    def of(
        self,
        session: SparkSession,
        stream: Stream,
        source: SourceCapabilities,
        options: Mapping[str, str],
    ) -> str | StructType | None:
        """The schema to read a stream with; None where the source has one of its own."""
        if stream.schema:
            return stream.schema
        if not source.infers_schema or stream.format == "text":
            return None
        key = f"{stream.name}-{_digest(stream)}"
        if key not in self._inferred:
            self._inferred[key] = self._kept(key) or self._infer(session, stream, source, options)
            self._keep(key, self._inferred[key])
        return self._inferred[key]

    def _infer(
        self,
        session: SparkSession,
        stream: Stream,
        source: SourceCapabilities,
        options: Mapping[str, str],
    ) -> StructType:
        streaming = {o.lower() for o in source.streaming_only}
        batch = {k: v for k, v in options.items() if k.lower() not in streaming}
        return session.read.format(stream.format).options(**batch).load().schema

    def _kept(self, key: str) -> StructType | None:
        from pyspark.sql.types import StructType

        try:
            text = Path(self._folder, f"{key}.json").read_text()
        except FileNotFoundError:
            return None
        return StructType.fromJson(json.loads(text))

    def _keep(self, key: str, schema: StructType) -> None:
        if not self._keeps:
            return
        os.makedirs(self._folder, exist_ok=True)
        draft = Path(self._folder, f"{key}.{os.getpid()}")
        draft.write_text(schema.json())
        draft.replace(Path(self._folder, f"{key}.json"))


def _digest(stream: Stream) -> str:
    """Changes with anything that inference looks at; secrets are in it by name only."""
    text = json.dumps([stream.format, dict(stream.options), dict(stream.unchecked_options)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
