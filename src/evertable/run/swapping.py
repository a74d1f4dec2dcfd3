"""A new version takes the name of a table: target, checkpoint, manifests.

What is to be done is noted first, and every step can be done again: whoever comes after a crash
goes on. The target is swapped in one commit, so that readers see the one or the other, whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

from evertable.model.pipeline import Pipeline, Table
from evertable.model.storage import Storage
from evertable.plan.answers import Answers
from evertable.plan.keeping import Keeping
from evertable.plan.manifest import Manifest, from_text, to_text
from evertable.run.second import second_table
from evertable.run.targets import sink_options
from evertable.sinks.embedded import versions as embedded
from evertable.sinks.postgres.versions import swap as swap_in_postgres
from evertable.spark.checkpoint import Checkpoint


def swap(pipeline: Pipeline, table: Table, new: Table, made: Manifest) -> None:
    """Nobody may be writing to either of them; `made` is what the table is from now on."""
    storage = Storage.of(pipeline)
    note = _note(storage, table.name)
    query_id = Checkpoint(storage.checkpoint(new.name)).query_id()
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = note.with_name(f".{note.name}")
    noted = {"new": new.name, "query_id": query_id, "manifest": json.loads(to_text(made))}
    draft.write_text(json.dumps(noted))
    draft.replace(note)
    finish_swap(pipeline, table)


def finish_swap(pipeline: Pipeline, table: Table) -> None:
    """Do what is noted, if anything is."""
    storage = Storage.of(pipeline)
    note = _note(storage, table.name)
    try:
        noted = json.loads(note.read_text())
    except FileNotFoundError:
        return
    name, query_id = noted["new"], noted["query_id"]
    (spec,) = table.sinks
    if spec.format == "embedded":
        embedded.swap(
            storage.table_file(table.name), storage.table_file(name), table.name, name, query_id
        )
    else:
        second = second_table(table, name)
        options = sink_options(pipeline, table, spec)
        new_options = sink_options(pipeline, second, second.sinks[0])
        swap_in_postgres(table, spec, options, new_options)
    now, new = (Checkpoint(storage.checkpoint(n)) for n in (table.name, name))
    if new.query_id() == query_id:
        if now.query_id() not in (None, query_id):
            now.set_aside()
        os.rename(new.folder, now.folder)
    made = from_text(json.dumps(noted["manifest"]))
    keeping = Keeping(storage.manifests(table.name))
    keeping.take_over(storage.manifests(name), made, now.standing())
    for one in (table.name, name):
        Answers(storage.answers(one)).forget()
    note.unlink()


def forget_version(pipeline: Pipeline, table: Table) -> None:
    """Remove a version that nobody will finish."""
    storage = Storage.of(pipeline)
    shutil.rmtree(storage.checkpoint(table.name), ignore_errors=True)
    shutil.rmtree(storage.manifests(table.name), ignore_errors=True)
    (spec,) = table.sinks
    if spec.format == "embedded":
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(storage.table_file(table.name) + suffix)
    else:
        from evertable.sinks.postgres.sink import Owned

        Owned(table, spec, sink_options(pipeline, table, spec)).release(rows=True)


def _note(storage: Storage, table: str) -> Path:
    return Path(storage.folder, "swaps", f"{table}.json")
