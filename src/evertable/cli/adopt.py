"""`evertable adopt CHECKPOINT --table T`: goes on where a query of plain PySpark stopped."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from evertable.cli.drop import locked
from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.terminal import Terminal
from evertable.errors import Finding, Refused
from evertable.model.storage import Storage
from evertable.spark.checkpoint import Checkpoint


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a folder that Spark has written")
    pipeline_arguments(parser)
    parser.add_argument("--table", required=True, metavar="T", help="the table that goes on there")


def command(options: argparse.Namespace) -> int:
    from evertable.project import open_pipeline
    from evertable.run.adopting import adopt
    from evertable.run.runner import chosen, make_storage

    pipeline = open_pipeline(options.file, sets_of(options))
    (table,) = chosen(pipeline, [options.table])
    folder = os.path.abspath(options.checkpoint)
    storage = Storage.of(pipeline)
    if not os.path.isfile(os.path.join(folder, "metadata")):
        raise Refused(
            Finding(
                "CHECKPOINT_UNKNOWN", f'"{options.checkpoint}" is no checkpoint of a query',
                detail="a checkpoint has a file `metadata`, and folders offsets and commits",
            )
        )  # fmt: skip
    if os.path.isdir(storage.checkpoint(table.name)):
        raise Refused(
            Finding(
                "CHECKPOINT_EXISTS", f'table "{table.name}" has a checkpoint already',
                table.location, hint=f"evertable drop {table.name}, if it is to go",
            )
        )  # fmt: skip
    make_storage(storage)
    terminal = Terminal.of(sys.stdout)
    with locked(storage.lock(table.name), table.name):
        target = storage.checkpoint(table.name)
        draft = f"{target}.adopting"
        shutil.rmtree(draft, ignore_errors=True)
        before = Checkpoint(folder).standing()
        shutil.copytree(folder, draft)
        if Checkpoint(folder).standing() != before:
            shutil.rmtree(draft, ignore_errors=True)
            raise Refused(
                Finding(
                    "CHECKPOINT_IN_USE", f'"{options.checkpoint}" is being written',
                    detail="what its query does from now on would be done again here",
                    hint="end the old query for good first",
                )
            )  # fmt: skip
        try:
            judgement = adopt(pipeline, table, draft)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        os.rename(draft, target)
    terminal.line(
        f'{terminal.mark("fine")} table "{table.name}" goes on at batch {judgement.batch:,}; '
        "the checkpoint that was copied stays where it is"
    )
    for change in judgement.changes:
        terminal.line(f"{terminal.mark('fact')} {change.message}: {change.detail}")
    terminal.line()
    terminal.line(f"{terminal.mark('next')} evertable run")
    return 0
