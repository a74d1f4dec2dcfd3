"""Whose the rows of a target are, and how they are given up. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evertable.model.pipeline import Pipeline, SinkSpec, Table
from evertable.model.storage import Storage
from evertable.sinks import kafka_transactions
from evertable.sinks.embedded import ledger as files_of_ours
from evertable.sinks.files import FileLog
from evertable.sinks.postgres.sink import Owned
from evertable.sinks.seam import Held


@dataclass(frozen=True)
class Grip:
    """A query's hold on one target."""

    held: Callable[[], Held | None]
    release: Callable[[], object]  # rows stay, and belong to nobody


def grip(
    pipeline: Pipeline, table: Table, spec: SinkSpec, options: Mapping[str, str]
) -> Grip | None:
    """None where a sink keeps no ledger. `options` have secrets read and paths made absolute."""
    storage = Storage.of(pipeline)
    file = storage.table_file(table.name)
    path = {option.lower(): value for option, value in options.items()}.get("path")
    if spec.ledger is not None:
        file = storage.ledger_file(table.name, table.sinks.index(spec))
    if spec.format == "embedded" or spec.ledger is not None:
        return Grip(lambda: files_of_ours.held(file), lambda: files_of_ours.release(file))
    if spec.format == "postgres":
        owned = Owned(table, spec, options)
        return Grip(owned.held, owned.release)
    if spec.format == "kafka" and spec.delivery == "exactly_once":
        about = kafka_transactions.About(pipeline.name, table, spec, options)
        return Grip(
            lambda: kafka_transactions.held(about), lambda: kafka_transactions.release(about)
        )
    if path is not None and "://" not in path:
        log = FileLog(path)
        return Grip(log.held, log.forget)
    return None
