"""`evertable doctor [FILE]`: what this machine has, what it lacks, and how to get it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.terminal import Terminal, plural, size
from evertable.errors import DefinitionError, EvertableError, Finding
from evertable.model.names import did_you_mean
from evertable.model.pipeline import Pipeline

_NEEDED = ("pandas", "pyarrow", "protobuf", "grpcio")
_LITTLE_SPACE = 1_000_000_000


@dataclass(frozen=True)
class Examined:
    """One thing that was looked at."""

    what: str
    how: str  # fine, look, broken
    said: str
    finding: Finding | None = None


def arguments(parser: argparse.ArgumentParser) -> None:
    pipeline_arguments(parser)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--warm", action="store_true", help="make the class archive that halves Spark's start"
    )
    parser.add_argument(
        "--fetch",
        action="append",
        default=[],
        metavar="CONNECTOR",
        help="bring a connector's jars to this machine: kafka, avro, files, broker",
    )
    parser.add_argument("--to", metavar="ZIP", help="with --fetch: also into a file to carry")
    parser.add_argument("--add", metavar="ZIP", help="take jars out of such a file")


def command(options: argparse.Namespace) -> int:
    from evertable.project import open_pipeline

    if options.fetch or options.add or options.to:
        return _bring(options)
    java = _java()  # before Spark is started, which sets JAVA_HOME
    if options.warm:
        from evertable.cli.warm import warm

        warm(Terminal.of(sys.stderr))
    pipeline: Pipeline | None = None
    broken_pipeline: list[Examined] = []
    try:
        pipeline = open_pipeline(options.file, sets_of(options))
    except EvertableError as e:
        # Without FILE a folder may simply have no pipeline: the machine can be looked at anyway.
        if options.file or e.findings[0].code != "PIPELINE_MISSING":
            broken_pipeline = [Examined("pipeline", "broken", str(e.findings[0]), e.findings[0])]
    examined = [
        _python(),
        java,
        _pyspark(),
        *_start(),
        *_storage(pipeline),
        *_cores(pipeline),
        *_connectors(pipeline),
        *broken_pipeline,
    ]
    if options.json:
        print(json.dumps({"v": 1, "examined": [asdict(e) for e in examined]}))
    else:
        _show(Terminal.of(sys.stdout), examined)
    return 4 if any(e.how == "broken" for e in examined) else 0


def _bring(options: argparse.Namespace) -> int:
    """Jars from the network, from a bundle, into a bundle."""
    from evertable.spark import connectors

    terminal = Terminal.of(sys.stderr)
    known = connectors.lock()
    for name in options.fetch:
        if name not in known:
            raise DefinitionError.of(
                "CONNECTOR_UNKNOWN",
                f'there is no connector "{name}"',
                hint=did_you_mean(name, known) or f"one of {', '.join(known)}",
            )
    if options.to and not options.fetch:
        raise DefinitionError.of(
            "COMMAND_INVALID", "--to has nothing to write", hint="--fetch kafka --to jars.zip"
        )
    if options.add:
        for file in connectors.add(Path(options.add)):
            terminal.line(f"{terminal.mark('fine')} {file}")
    for name in options.fetch:
        jars = connectors.get(known[name], terminal.line)
        terminal.line(f"{terminal.mark('fine')} {name:<10} {plural(len(jars), 'jar')} here")
    if options.to:
        files = connectors.bundle([known[name] for name in options.fetch], Path(options.to))
        terminal.line(f"{terminal.mark('fine')} {options.to} holds {plural(len(files), 'jar')}")
    return 0


def _connectors(pipeline: Pipeline | None) -> list[Examined]:
    from evertable.run.opening import needs
    from evertable.spark import connectors

    found: list[Examined] = []
    for name, what, place in needs(pipeline) if pipeline else ():
        connector = connectors.lock()[name]
        if connectors.present(connector):
            found.append(Examined(name, "fine", connector.sets[0].name))
            continue
        finding = Finding(
            "CONNECTOR_MISSING",
            f"{what} needs {connector.sets[0].name.partition(',')[0]}",
            place,
            detail=f"it is not in {connectors.folder()}; `evertable run` would fetch it",
            hint=f"evertable doctor --fetch {name}",
        )
        found.append(Examined(name, "broken", "the connector is not on this machine", finding))
    return found


def _show(terminal: Terminal, examined: list[Examined]) -> None:
    for one in examined:
        terminal.line(f"{terminal.mark(one.how)} {one.what:<10} {one.said}")
    findings = [e.finding for e in examined if e.finding]
    if findings:
        terminal.line()
        terminal.findings(findings)
    terminal.line()
    how = [e.how for e in examined]
    parts = [f"{how.count('fine')} fine"]
    if "look" in how:
        parts.append(f"{how.count('look')} to look at")
    if "broken" in how:
        parts.append(f"{how.count('broken')} broken")
    terminal.line(", ".join(parts))


def _python() -> Examined:
    return Examined("python", "fine", sys.version.split()[0])


def _java() -> Examined:
    from evertable.spark.java import find_java

    try:
        java = find_java()
    except EvertableError as e:
        return Examined("java", "broken", "none that fits", e.findings[0])
    return Examined("java", "fine", f"{java.version} from {java.origin}")


def _pyspark() -> Examined:
    from evertable.spark.session import SPARK_MINOR

    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return Examined(
            "pyspark", "broken", "not installed",
            Finding("PYSPARK_MISSING", "PySpark is not installed", hint="pip install evertable"),
        )  # fmt: skip
    having: list[str] = []
    missing: list[str] = []
    for package in _NEEDED:
        try:
            having.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            missing.append(package)
    said = f"{version} with {', '.join(having)}"
    if missing:
        finding = Finding(
            "PACKAGE_MISSING", f"PySpark needs {', '.join(missing)}",
            hint=f"pip install {' '.join(missing)}",
        )  # fmt: skip
        return Examined("pyspark", "broken", said, finding)
    if not version.startswith(SPARK_MINOR + "."):
        return Examined("pyspark", "look", f"{said}; Evertable was proved on {SPARK_MINOR}")
    return Examined("pyspark", "fine", said)


def _start() -> list[Examined]:
    from evertable.spark import classes
    from evertable.spark.java import find_java

    try:
        file = classes.archive(find_java())
    except (EvertableError, ImportError):
        return []  # said above already
    if classes.makes_none(file):
        return [Examined("start", "fine", "this Java keeps no class archive")]
    if file.is_file():
        return [Examined("start", "fine", "quick: the class archive is there")]
    return [Examined("start", "look", "slow: `evertable doctor --warm` halves it, once for all")]


def _storage(pipeline: Pipeline | None) -> list[Examined]:
    from evertable.model.storage import Storage

    folder = Storage.of(pipeline).folder if pipeline else os.path.abspath(".evertable")
    there = folder
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    try:
        with tempfile.NamedTemporaryFile(dir=there):
            pass
    except OSError as e:
        finding = Finding(
            "FOLDER_NOT_WRITABLE", f'"{there}" cannot be written: {e.strerror}',
            hint="set `storage:` to a folder of yours",
        )  # fmt: skip
        return [Examined("storage", "broken", folder, finding)]
    free = shutil.disk_usage(there).free
    how = "fine" if free > _LITTLE_SPACE else "look"
    return [Examined("storage", how, f"{folder} is writable, {size(free)} free")]


def _cores(pipeline: Pipeline | None) -> list[Examined]:
    from evertable.spark.session import cores, is_local

    if pipeline is None:
        return []
    master = pipeline.spark.get("master", pipeline.spark.get("spark.master", "local[*]"))
    if not is_local(master):
        return []
    there, tables = cores(master), len(pipeline.tables)
    said = f"{there} cores for {tables} tables"
    if tables > 2 * there:
        return [Examined("cores", "look", f"{said}: batches wait for each other")]
    return [Examined("cores", "fine", said)]
