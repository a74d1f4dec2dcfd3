"""`evertable VERB [FILE]`: reads the command line and hands over to one module a verb."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module, metadata

from evertable.cli.terminal import Terminal
from evertable.errors import DefinitionError, EvertableError, Finding

# verb -> (module, what it does)
VERBS = {
    "new": ("new", "make a first pipeline in a new folder"),
    "demo": ("demo", "see streaming tables fill, crash and recover; needs nothing"),
    "check": ("check", "say what is wrong with a pipeline before it runs"),
    "plan": ("plan", "say what an edit means to the tables that run already"),
    "run": ("run", "run the tables of a pipeline"),
    "history": ("history", "what a table ran with, and when"),
    "adopt": ("adopt", "go on where a query of plain PySpark stopped"),
    "query": ("query", "SQL over embedded tables, also while they fill"),
    "test": ("test", "run the tests of this folder: pytest, with streams and time in hand"),
    "preview": ("preview", "rows of a view from a bounded piece of its input"),
    "drop": ("drop", "remove a table: its checkpoint, its ledger, its rows"),
    "sink": ("sink", "show whose rows a target has, or release them"),
    "broker": ("broker", "a real Kafka broker on loopback, for first steps and tests"),
    "doctor": ("doctor", "say what this machine lacks"),
    "schema": ("schema", "print the JSON Schema of the YAML file"),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise DefinitionError(Finding("COMMAND_INVALID", message, hint=f"{self.prog} --help"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    logging.getLogger().addHandler(logging.NullHandler())  # py4j logs stacks when interrupted
    argv = list(sys.argv[1:] if arguments is None else arguments)
    return report(lambda: _dispatch(argv))


def report(action: Callable[[], int]) -> int:
    """Do it; an error becomes its findings on stderr and its exit code, never a stack."""
    try:
        code = action()
        sys.stdout.flush()  # while a reader that has gone can still be noticed
        return code
    except EvertableError as e:
        Terminal.of(sys.stderr).findings(e.findings)
        return e.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        with contextlib.suppress(OSError):  # what is still buffered goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as e:
        if os.environ.get("EVERTABLE_TRACE"):
            raise
        Terminal.of(sys.stderr).finding(
            Finding(
                "INTERNAL",
                f"a mistake of Evertable's own: {type(e).__name__}: {e}",
                hint="EVERTABLE_TRACE=1 shows where; please report it",
            )
        )
        return 1


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        _help()
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"evertable {metadata.version('evertable')}")
        return 0
    verb = argv[0]
    if verb not in VERBS:
        from evertable.model.names import did_you_mean

        raise DefinitionError(
            Finding(
                "COMMAND_INVALID",
                f'there is no verb "{verb}"',
                hint=did_you_mean(verb, VERBS) or f"one of {', '.join(VERBS)}",
            )
        )
    module_name, description = VERBS[verb]
    module = import_module(f"evertable.cli.{module_name}")
    if hasattr(module, "passed_on"):  # the words are another program's
        return int(module.passed_on(argv[1:]))
    parser = _Parser(prog=f"evertable {verb}", description=description, allow_abbrev=False)
    module.arguments(parser)
    return int(module.command(parser.parse_intermixed_args(argv[1:])))


def _help() -> None:
    print("evertable: streaming tables on Apache Spark\n\nusage: evertable VERB [FILE] [options]\n")
    for verb, (_, description) in VERBS.items():
        print(f"  {verb:<9} {description}")
    print(
        "\n`evertable VERB --help` says more. Without FILE: the only *.yaml of the folder with\n"
        "`tables:`, else pipeline.py."
    )


def pipeline_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE and --set, which most verbs take."""
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the pipeline (default: this folder's)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter's value"
    )


def sets_of(options: argparse.Namespace) -> dict[str, str]:
    result: dict[str, str] = {}
    for text in options.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise DefinitionError(
                Finding("COMMAND_INVALID", f'--set "{text}" has no "="', hint="--set since=latest")
            )
        result[name] = value
    return result


if __name__ == "__main__":
    sys.exit(main())
