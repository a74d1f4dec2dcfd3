"""One table of Postgres takes the name of another, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping

from evertable.model.pipeline import SinkSpec, Table
from evertable.sinks.postgres import target
from evertable.sinks.postgres.client import Client
from evertable.sinks.postgres.columns import quoted
from evertable.sinks.postgres.ledger import LEDGER
from evertable.sinks.postgres.sink import Target


def swap(
    table: Table,
    spec: SinkSpec,
    options: Mapping[str, str],
    new_options: Mapping[str, str],
) -> None:
    """The new table gets the name, and the old one is kept under another. Can be done again."""
    where, new_where = Target(table, spec, options), Target(table, spec, new_options)
    client = where.connect()
    try:
        name, there = target.find(client, where.name, where.about)
        new, made = target.find(client, new_where.name, where.about)
        if not made.columns:
            return  # it was done before
        ledger = f"{quoted(name.schema)}.{LEDGER}"
        with client.transaction():
            kept = _kept_name(client, name)
            if there.columns:
                client.run(f"ALTER TABLE {name.sql} RENAME TO {quoted(kept)}")
            client.run(f"ALTER TABLE {new.sql} RENAME TO {quoted(name.table)}")
            _moved(client, ledger, name.table, kept)
            _moved(client, ledger, new.table, name.table)
    finally:
        client.close()


def _moved(client: Client, ledger: str, before: str, after: str) -> None:
    client.rows(f"UPDATE {ledger} SET target = $2 WHERE target = $1 RETURNING 1", before, after)


def _kept_name(client: Client, name: target.Name) -> str:
    taken = {
        row[0]
        for row in client.rows(
            "SELECT tablename::text FROM pg_tables WHERE schemaname = $1", name.schema
        )
    }
    number = 1
    while (kept := f"{name.table}__old_{number}") in taken:
        number += 1
    return kept
