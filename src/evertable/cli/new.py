"""`evertable new NAME`: a first pipeline that runs as it is."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import resources
from pathlib import Path

from evertable.cli.terminal import Terminal, plural
from evertable.errors import DefinitionError, Finding
from evertable.model.names import PATTERN


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the folder and the pipeline's name")
    parser.add_argument("--python", action="store_true", help="pipeline.py instead of YAML")
    parser.add_argument("--kafka", action="store_true", help="a stream that Kafka has")


def command(options: argparse.Namespace) -> int:
    folder = Path(options.name)
    name = folder.name.replace("-", "_")
    if not re.match(PATTERN, name):
        raise DefinitionError(
            Finding(
                "COMMAND_INVALID",
                f'"{options.name}" is no name',
                hint="letters, digits, - and _, a letter first",
            )
        )
    if folder.is_file():
        raise DefinitionError(Finding("FOLDER_NOT_EMPTY", f'"{folder}" is a file'))
    if folder.is_dir() and any(folder.iterdir()):
        number = sum(1 for _ in folder.iterdir())
        raise DefinitionError(
            Finding(
                "FOLDER_NOT_EMPTY",
                f'{folder}/: folder "{folder}" already holds {plural(number, "file")}',
                hint=f"choose another name, or `cd {folder}` and run `evertable check`",
            )
        )
    files = _files(name, python=options.python, kafka=options.kafka)
    try:
        for file, (text, _) in files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as e:
        raise DefinitionError(
            Finding("FOLDER_NOT_WRITABLE", f'"{folder}" cannot be written: {e.strerror}')
        ) from e
    terminal = Terminal.of(sys.stdout)
    terminal.line(f"created {folder}/")
    for file, (_, what) in files.items():
        terminal.line(f"  {file:<21} {what}")
    terminal.line()
    first = f"{terminal.mark('next')} cd {folder}"
    terminal.line(first)
    if options.kafka:
        terminal.line(
            "  evertable broker --port 9092 --topic clicks   a Kafka to begin with, beside"
        )
    terminal.line("  evertable check       does it fit together?")
    terminal.line("  evertable test        do they give what they should?")
    terminal.line("  evertable run         start it")
    terminal.line('  evertable query "SELECT * FROM clicks_per_brand"   while it runs')
    return 0


def _files(name: str, *, python: bool, kafka: bool) -> dict[str, tuple[str, str]]:
    """Each file of the folder: its text, and what it is."""
    kind = "py" if python else "yaml"
    template = f"{'kafka' if kafka else 'pipeline'}.{kind}"
    described = (
        "2 streams, one of them from Kafka, 1 static table, 3 tables"
        if kafka
        else "2 streams, 1 static table, 1 view, 2 tables; needs no Kafka"
    )
    return {
        "pipeline.py" if python else f"{name}.yaml": (
            _template(template).replace("PIPELINE_NAME", name),
            described,
        ),
        "data/adverts.csv": (_template("adverts.csv"), "the static table"),
        f"tests/test_{name}.py": (
            _template("test_kafka.py" if kafka else "test_pipeline.py"),
            "3 tests: a window closes, a late row is not counted, a crash loses nothing",
        ),
        f"tests/{name}.yaml": (
            _template("tests_kafka.yaml" if kafka else "tests.yaml"),
            "1 test without Python",
        ),
        ".gitignore": (
            ".evertable/\n",
            "keeps .evertable/ (checkpoints, tables, logs) out of git",
        ),
    }


def _template(name: str) -> str:
    return (resources.files("evertable.define") / "templates" / name).read_text()
