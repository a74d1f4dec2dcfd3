"""`evertable history TABLE [FILE]`: what ran when, with which definition, from which offsets."""

from __future__ import annotations

import argparse
import json
import sys

from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.terminal import Terminal, clean
from evertable.plan.keeping import Line, Version


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE")
    pipeline_arguments(parser)
    parser.add_argument("--json", action="store_true")


def command(options: argparse.Namespace) -> int:
    from evertable.project import open_pipeline
    from evertable.run.planning import Planning
    from evertable.run.runner import chosen

    pipeline = open_pipeline(options.file, sets_of(options))
    (table,) = chosen(pipeline, [options.table])
    planning = Planning(pipeline, table)
    standing = planning.standing()
    versions = {v.number: v for v in planning.keeping.versions(standing)}
    lines = planning.keeping.history()
    if options.json:
        print(
            json.dumps({"v": 1, "table": table.name, "runs": [_json(x, versions) for x in lines]})
        )
        return 0
    terminal = Terminal.of(sys.stdout)
    if not lines:
        terminal.line(f'table "{table.name}" never ran')
        return 0
    rows = []
    for line in lines:
        offsets = " ".join(f"{k}:{v}" for k, v in line.offsets.items())
        cut = offsets if len(offsets) <= 40 else offsets[:39] + "…"
        rows.append(
            [line.at, line.event, str(line.version), f"{line.batch:,}", cut, line.answer or ""]
        )
    header = ["at", "what", "version", "batch", "offsets", "answer"]
    terminal.table(header, rows, {2, 3})
    terminal.line()
    for number, version in versions.items():
        definition = version.manifest.definition
        sql = definition["table"]["query"]["sql"] if definition else "a query in Python"
        first = f"version {number}, from batch {version.batch:,} ({version.at})"
        terminal.line(terminal.paint(first, "bold"))
        for text in str(sql).strip().splitlines():
            terminal.line(f"  {clean(text)}")
    return 0


def _json(line: Line, versions: dict[int, Version]) -> dict[str, object]:
    version = versions.get(line.version)
    return {
        "at": line.at, "event": line.event, "version": line.version, "batch": line.batch,
        "offsets": dict(line.offsets), "answer": line.answer or None,
        "definition": dict(version.manifest.definition) if version else None,
    }  # fmt: skip
