"""`evertable test`: pytest over the tests of this folder, in Python and in YAML."""

from __future__ import annotations

from collections.abc import Sequence

from evertable.errors import Finding, NotReady

_HELP = """usage: evertable test [PATH …] [options of pytest]

Runs the tests of this folder: tests/*.yaml and tests/test_*.py. Every option of pytest passes
through (`pytest --help`); -v shows what pytest itself would."""


def passed_on(arguments: Sequence[str]) -> int:
    """Run pytest with these words; 0 where all passed, 1 where a test failed, 2 for wrong words."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(_HELP)
        return 0
    try:
        import pytest
    except ImportError as e:
        raise NotReady(
            Finding("PYTEST_MISSING", "tests need pytest", hint="pip install 'evertable[test]'")
        ) from e
    from evertable.cli.looks import OurLooks

    # Ours are imported by now, and have no asserts that pytest would have to see into.
    quiet = ["--no-header", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = int(pytest.main([*quiet, *arguments], plugins=[OurLooks()]))
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise NotReady(
            Finding(
                "TESTS_MISSING",
                "there are no tests here",
                hint="put some into tests/test_*.py or tests/*.yaml; `evertable new` makes some",
            )
        )
    return {pytest.ExitCode.INTERRUPTED: 130, pytest.ExitCode.USAGE_ERROR: 2}.get(
        pytest.ExitCode(code), code
    )
