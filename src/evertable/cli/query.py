"""`evertable query "SQL" [FILE]`: reads embedded tables; starts no JVM."""

from __future__ import annotations

import argparse
import base64
import csv
import datetime as dt
import decimal
import json
import sys
import time
from typing import Any

from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.terminal import Terminal, cell, count, duration, plural


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sql", metavar="SQL")
    pipeline_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a list of objects")
    form.add_argument("--csv", action="store_true")


def command(options: argparse.Namespace) -> int:
    from evertable.model.storage import Storage
    from evertable.project import open_pipeline
    from evertable.sinks.embedded.reader import query

    begun = time.monotonic()
    pipeline = open_pipeline(options.file, sets_of(options))
    storage = Storage.of(pipeline)
    embedded = [t for t in pipeline.tables if t.sink("embedded")]
    answer = query(
        options.sql,
        {t.name: storage.table_file(t.name) for t in embedded},
        [t.name for t in pipeline.tables if t not in embedded],
    )
    if options.json:
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        print(json.dumps(rows, default=plain, ensure_ascii=False))
        return 0
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([["" if v is None else _text(v) for v in row] for row in answer.rows])
        return 0
    terminal = Terminal.of(sys.stdout)
    right = {
        i
        for i in range(len(answer.columns))
        if any(isinstance(row[i], int | float | decimal.Decimal) for row in answer.rows)
    }
    shown = [[_shown(v, thousands=terminal.live) for v in row] for row in answer.rows]
    terminal.table(answer.columns, shown, right)
    as_of = "; ".join(
        f"{table} as of batch {count(batch)}" if batch is not None else f"{table} has no batch yet"
        for table, batch in answer.as_of.items()
    )
    took = f"{plural(len(answer.rows), 'row')}, {duration(time.monotonic() - begun)}"
    last = Terminal.of(sys.stdout if terminal.live else sys.stderr)
    last.line(last.paint(f"{took}; {as_of}" if as_of else took, "dim"))
    return 0


def plain(value: Any) -> Any:
    """What JSON has no type for, as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)


def _text(value: Any) -> str:
    """A value as one can type it into the next query."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(sep=" ")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(plain(value)) if isinstance(value, bytes) else cell(value, thousands=False)


def _shown(value: Any, *, thousands: bool) -> str:
    numbers = isinstance(value, int | float) and not isinstance(value, bool)
    return cell(value, thousands=thousands) if numbers else _text(value)
