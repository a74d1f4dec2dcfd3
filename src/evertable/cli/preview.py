"""`evertable preview NAME [FILE]`: what a view gives, from a bounded piece of its input."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile

from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.query import plain
from evertable.cli.terminal import Terminal, cell, plural
from evertable.errors import DefinitionError, Finding, Refused
from evertable.model.names import did_you_mean


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="VIEW", help="a view, stream, static or table")
    pipeline_arguments(parser)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="a list of objects")


def command(options: argparse.Namespace) -> int:
    from evertable.model.storage import Storage
    from evertable.project import open_pipeline
    from evertable.run import bounded
    from evertable.run.opening import open_spark
    from evertable.spark.errors import explain
    from evertable.spark.schemas import SchemaStore

    pipeline = open_pipeline(options.file, sets_of(options))
    table = pipeline.table(options.name)
    names = [entry.name for entry in pipeline.inputs()]
    if table is None and options.name not in names:
        known = [*names, *(t.name for t in pipeline.tables)]
        raise DefinitionError(
            Finding(
                "NAME_UNKNOWN",
                f'there is no "{options.name}"',
                hint=did_you_mean(options.name, known) or f"known: {', '.join(known)}",
            )
        )
    with tempfile.TemporaryDirectory(prefix="evertable-preview-") as scratch:
        logs = os.path.join(scratch, "logs")
        spark = open_spark(pipeline, logs=logs, quick=True)
        frames = bounded.frames(
            spark, pipeline, SchemaStore(Storage.of(pipeline).schemas, keep=False)
        )
        what = f'"{options.name}"'
        try:
            frame = (
                frames.of(table.query, f'table "{table.name}"')
                if table
                else frames.input(options.name)
            )
            rows = frame.limit(options.rows).toArrow()
        except Refused:
            raise
        except Exception as e:
            raise Refused(explain(e, what)) from e
    if options.json:
        print(json.dumps(rows.to_pylist(), default=plain, ensure_ascii=False))
        return 0
    terminal = Terminal.of(sys.stdout)
    cells = [
        [cell(v, thousands=terminal.live)[:60] for v in row.values()] for row in rows.to_pylist()
    ]
    terminal.table(rows.column_names, cells, set())
    last = Terminal.of(sys.stderr)
    last.line(last.paint(f"{plural(rows.num_rows, 'row')} of a piece of the input", "dim"))
    return 0
