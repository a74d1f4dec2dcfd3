"""`evertable sink show|release TABLE [FILE]`: whose rows a target has, and giving them up."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from evertable.cli.drop import locked
from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.terminal import Terminal
from evertable.errors import AnswerNeeded, Finding
from evertable.model.pipeline import Pipeline, Table
from evertable.model.storage import Storage
from evertable.sinks.grip import Grip, grip
from evertable.sinks.seam import Held
from evertable.spark.checkpoint import Checkpoint
from evertable.spark.secrets import redact


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["show", "release"])
    parser.add_argument("table", metavar="TABLE")
    pipeline_arguments(parser)
    parser.add_argument("--json", action="store_true", help="show: one object a sink")
    parser.add_argument("--yes", action="store_true", help="release: do not ask")


def command(options: argparse.Namespace) -> int:
    from evertable.project import open_pipeline
    from evertable.run.runner import chosen
    from evertable.run.targets import sink_options

    pipeline = open_pipeline(options.file, sets_of(options))
    table = chosen(pipeline, [options.table])[0]
    found = [
        (spec.format, one)
        for spec in table.sinks
        if (one := grip(pipeline, table, spec, sink_options(pipeline, table, spec)))
    ]
    if options.what == "show":
        return _show(pipeline, table, found, as_json=options.json)
    return _release(pipeline, table, found, yes=options.yes)


def _show(pipeline: Pipeline, table: Table, found: list[tuple[str, Grip]], *, as_json: bool) -> int:
    checkpoint = Checkpoint(Storage.of(pipeline).checkpoint(table.name))
    known = [(format, one.held()) for format, one in found]
    if as_json:
        values = [{"format": format, **(asdict(held) if held else {})} for format, held in known]
        print(json.dumps({"v": 1, "table": table.name, "sinks": values}))
        return 0
    terminal = Terminal.of(sys.stdout)
    if not known:
        terminal.line(f'no sink of table "{table.name}" keeps a ledger')
    for format, held in known:
        terminal.line(terminal.paint(format, "bold"))
        if held is None:
            terminal.line("  belongs to nobody: it has no ledger of ours yet")
            continue
        for name, value in _lines(held, checkpoint):
            terminal.line(f"  {name:<11}{redact(value)}")
    return 0


def _lines(held: Held, checkpoint: Checkpoint) -> list[tuple[str, str]]:
    ours = checkpoint.query_id()
    whose = "this table's checkpoint" if held.query_id == ours else "another checkpoint"
    return [
        ("target", held.target),
        ("query", f"{held.query_id} ({whose})"),
        *([("owner", held.owner)] if held.owner else []),
        ("batch", "none yet" if held.batch is None else f"{held.batch:,}"),
        ("checkpoint", _at(checkpoint)),
        *([("written", held.written_at)] if held.written_at else []),
    ]


def _at(checkpoint: Checkpoint) -> str:
    done = checkpoint.last_commit()
    begun = checkpoint.last_offset()
    said = "no batch finished" if done < 0 else f"batch {done:,} finished"
    return f"{said}, batch {begun:,} begun" if begun > done else said


def _release(pipeline: Pipeline, table: Table, found: list[tuple[str, Grip]], *, yes: bool) -> int:
    terminal = Terminal.of(sys.stderr)
    held = [(format, one, there) for format, one in found if (there := one.held())]
    if not held:
        terminal.line(f'table "{table.name}" holds no target')
        return 0
    terminal.line(f'this gives up what query of table "{table.name}" wrote:')
    for format, _, there in held:
        terminal.line(f"  {format}: {redact(there.target)}")
    terminal.line(
        "the rows stay, and belong to nobody. The next query that writes there begins with its\n"
        "own first batch, beside them: rows that it reads again will be there twice"
    )
    if not yes:
        if not terminal.asks:
            raise AnswerNeeded(
                Finding(
                    "ANSWER_NEEDED",
                    f'release the targets of table "{table.name}"? Nobody can be asked here',
                    hint="answer with --yes",
                )
            )
        terminal.out.write(f"release? Type {table.name} to go on: ")
        terminal.out.flush()
        if sys.stdin.readline().strip() != table.name:
            raise AnswerNeeded(Finding("ANSWER_NEEDED", "nothing was released"))
    with locked(Storage.of(pipeline).lock(table.name), table.name):
        for _, one, _ in held:
            one.release()
    terminal.line(f"{terminal.mark('fine')} released")
    return 0
