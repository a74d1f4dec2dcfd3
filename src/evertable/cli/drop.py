"""`evertable drop TABLE [FILE]`: forgets a table: checkpoint, ledger and rows."""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.terminal import Terminal
from evertable.errors import AnswerNeeded, EvertableError, Finding, NotReady, Refused
from evertable.model.names import PATTERN
from evertable.model.pipeline import Pipeline, Query, SinkSpec, Table
from evertable.model.storage import Storage
from evertable.sinks.files import FileLog
from evertable.spark.frames import local_path
from evertable.spark.secrets import resolve


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE")
    pipeline_arguments(parser)
    parser.add_argument("--keep-data", action="store_true", help="leave the rows where they are")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def command(options: argparse.Namespace) -> int:
    from evertable.project import open_pipeline
    from evertable.run.runner import chosen

    pipeline = open_pipeline(options.file, sets_of(options))
    storage = Storage.of(pipeline)
    table = pipeline.table(options.table) or _left_behind(storage, options.table)
    if table is None:
        table = chosen(pipeline, [options.table])[0]  # raises, with the nearest name
    what = what_goes(pipeline, table, keep_data=options.keep_data)
    terminal = Terminal.of(sys.stderr)
    if not what:
        terminal.line(f'table "{table.name}" has nothing to remove')
        return 0
    terminal.line(f'this removes of table "{table.name}":')
    for removal in what:
        terminal.line(f"  {removal.said}")
    if not options.yes:
        _ask(terminal, table.name)
    with locked(storage.lock(table.name), table.name):
        for removal in what:
            removal.act()
    terminal.line(
        f'{terminal.mark("fine")} table "{table.name}" is gone; '
        "the next run starts it from the beginning"
    )
    return 0


def _left_behind(storage: Storage, name: str) -> Table | None:
    """A table that is in the file no more; an embedded one, as far as can be known."""
    if not re.match(PATTERN, name):
        return None
    there = os.path.isdir(storage.checkpoint(name)) or os.path.exists(storage.table_file(name))
    return Table(name=name, query=Query(sql="")) if there else None


@dataclass(frozen=True)
class Removal:
    """One step, and how it is said."""

    said: str
    act: Callable[[], object]


def what_goes(pipeline: Pipeline, table: Table, *, keep_data: bool) -> list[Removal]:
    """The steps, in an order in which each can be the last one that was done.

    The checkpoint goes first, and whole: rows without it are refused by name, and the same command
    again removes them.
    """
    steps: list[Removal] = []
    checkpoint = Storage.of(pipeline).checkpoint(table.name)
    aside = f"{checkpoint}.dropped"
    storage = Storage.of(pipeline)

    def forget() -> None:
        _remove_whole(checkpoint, aside)
        shutil.rmtree(storage.manifests(table.name), ignore_errors=True)  # they were of it
        _remove_files([storage.answers(table.name)])

    if os.path.isdir(checkpoint) or os.path.isdir(aside):
        steps.append(Removal(checkpoint, forget))
    for spec in table.sinks:
        steps += _of_sink(pipeline, table, spec, keep_data=keep_data)
    return steps


def _of_sink(pipeline: Pipeline, table: Table, spec: SinkSpec, *, keep_data: bool) -> list[Removal]:
    from evertable.sinks.embedded.sink import set_aside

    path = {option.lower(): value for option, value in spec.options.items()}.get("path")
    file = Storage.of(pipeline).table_file(table.name)
    if spec.format == "embedded":
        if os.path.exists(file) and keep_data:
            said = f"the ledger of {file}; its rows are kept beside it as .kept-…"
            return [Removal(said, lambda: set_aside(file))]
        if os.path.exists(file):
            return [Removal(file, lambda: _remove_files([file + s for s in _SQLITE]))]
        return []
    if spec.format == "postgres":
        return _of_postgres(pipeline, table, spec, keep_data=keep_data)
    if spec.ledger is not None or spec.delivery == "exactly_once":
        return _of_ledger(pipeline, table, spec)
    if path is not None:
        return _of_files(FileLog(_folder(table, path, pipeline.root)), keep_data=keep_data)
    return []


def _of_postgres(
    pipeline: Pipeline, table: Table, spec: SinkSpec, *, keep_data: bool
) -> list[Removal]:
    """The ledger; the rows with it where the table was made by us."""
    from evertable.run.targets import sink_options
    from evertable.sinks.postgres.sink import Owned

    owned = Owned(table, spec, sink_options(pipeline, table, spec))
    held = owned.held()
    if held is None:
        return []
    goes = owned.made_by_us() and not keep_data
    said = (
        f"table {held.target} in Postgres, and its ledger"
        if goes
        else f"the ledger of {held.target} in Postgres; its rows stay"
    )
    return [Removal(said, lambda: owned.release(rows=goes))]


def _of_ledger(pipeline: Pipeline, table: Table, spec: SinkSpec) -> list[Removal]:
    """What was written is somewhere else, and stays there."""
    from evertable.run.targets import sink_options
    from evertable.sinks.grip import grip

    found = grip(pipeline, table, spec, sink_options(pipeline, table, spec))
    held = found.held() if found else None
    if found is None or held is None:
        return []
    return [Removal(f"the ledger of {held.target}; what was written stays", found.release)]


_SQLITE = ("-wal", "-shm", "")


def _folder(table: Table, path: str, root: str) -> str:
    options = resolve({"path": path}, f'the sink of table "{table.name}"', table.location)
    return local_path(options["path"], root)


def _of_files(log: FileLog, *, keep_data: bool) -> list[Removal]:
    """What a table wrote into a folder, and nothing else that is in it."""
    files = [] if keep_data else log.files()
    if not files and not log.exists():
        return []
    said = f"{log.folder}: {len(files)} files of rows and the log of batches"
    if keep_data:
        said = f"{log.folder}: the log of batches; a new run writes beside the rows that are there"

    def remove() -> None:
        _remove_files(files)
        log.forget()

    return [Removal(said, remove)]


def _ask(terminal: Terminal, name: str) -> None:
    if not terminal.asks:
        raise AnswerNeeded(
            Finding(
                "ANSWER_NEEDED",
                f'remove table "{name}"? Nobody can be asked here',
                hint="answer with --yes",
            )
        )
    terminal.out.write(f"remove it? Type {name} to go on: ")
    terminal.out.flush()
    if sys.stdin.readline().strip() != name:
        raise AnswerNeeded(Finding("ANSWER_NEEDED", "nothing was removed"))


class locked:
    """The lock of the JVM that would write: Java's FileLock and this one exclude each other."""

    def __init__(self, file: str, table: str) -> None:
        self._file = file
        self._table = table

    def __enter__(self) -> None:
        os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
        self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(self._fd)
            raise NotReady.of(
                "CHECKPOINT_IN_USE",
                f'table "{self._table}" is running',
                hint="stop the run first",
            ) from e

    def __exit__(self, *exception: object) -> None:
        os.close(self._fd)


def _remove_whole(folder: str, aside: str) -> None:
    """Gone at once under its name; then file by file."""
    try:
        if os.path.isdir(folder):
            if os.path.isdir(aside):
                shutil.rmtree(aside)
            os.rename(folder, aside)
        shutil.rmtree(aside)
    except OSError as e:
        raise _not_removed(folder, e) from e


def _remove_files(paths: list[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as e:
            raise _not_removed(path, e) from e


def _not_removed(path: str, error: OSError) -> EvertableError:
    return Refused(Finding("FOLDER_NOT_WRITABLE", f'"{path}" cannot be removed: {error.strerror}'))
