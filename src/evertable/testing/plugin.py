"""The pytest plugin: fixtures, differences of rows, tests in YAML.

Loaded wherever pytest runs beside Evertable: nothing here imports Spark before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from evertable.model.pipeline import Pipeline
    from evertable.testing.broker import Broker
    from evertable.testing.postgres import Postgres
    from evertable.testing.under_test import PipelineUnderTest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("evertable")
    group.addoption(
        "--coverage-of-tables",
        action="store_true",
        help="say which tables, views and branches of CASE no test has touched",
    )
    group.addoption(
        "--update-snapshots", action="store_true", help="keep what `check` says now as right"
    )
    parser.addini("evertable_pipeline", "the pipeline under test, where a folder has several")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "pipeline(file): the pipeline under test, relative to the test's folder"
    )


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Which row, which column."""
    from evertable.testing.rows import Rows

    if op != "==" or not isinstance(left, Rows | list) or not isinstance(right, Rows | list):
        return None
    if isinstance(left, Rows):
        return [f'rows of "{left.what}" differ', *left.explained(right)]
    if isinstance(right, Rows):
        return [f'rows of "{right.what}" differ', *right.explained(left)]
    return None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Tests in YAML: files below a folder `tests` with `tests:` at their top."""
    if file_path.suffix not in (".yaml", ".yml") or "tests" not in file_path.parts[:-1]:
        return None
    from evertable.testing.yaml_tests import YamlFile, has_tests

    return YamlFile.from_parent(parent, path=file_path) if has_tests(file_path) else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--coverage-of-tables"):
        from evertable.testing.coverage import tell

        tell(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has ended."""
    if node.config.getoption("--coverage-of-tables"):
        from evertable.testing.coverage import hear

        hear(node.config, getattr(node, "workeroutput", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if not config.getoption("--coverage-of-tables"):
        return
    from evertable.testing.coverage import summary

    for line in summary(config):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def evertable_spark(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Pipeline], SparkSession]]:
    """Gives the one Spark session of the run; the first pipeline that asks starts it."""
    opened: list[SparkSession] = []

    def spark_for(pipeline: Pipeline) -> SparkSession:
        if not opened:
            from evertable.testing.sessions import open_for_tests

            opened.append(open_for_tests(pipeline, str(tmp_path_factory.mktemp("spark"))))
        return opened[0]

    yield spark_for
    for session in opened:
        session.stop()


@pytest.fixture
def pipeline_of(
    request: pytest.FixtureRequest, evertable_spark: Callable[[Pipeline], SparkSession]
) -> Iterator[Callable[[Pipeline | str], PipelineUnderTest]]:
    """Makes a pipeline under test of a model, a file beside the test, or YAML text."""
    from evertable.testing.coverage import touched_in
    from evertable.testing.sessions import model_of
    from evertable.testing.under_test import PipelineUnderTest

    made: list[PipelineUnderTest] = []

    def make(given: Pipeline | str) -> PipelineUnderTest:
        model = model_of(given, str(request.path.parent))
        touched = touched_in(request.config)
        made.append(PipelineUnderTest(model, evertable_spark(model), touched=touched))
        return made[-1]

    yield make
    for one in made:
        if request.config.getoption("--coverage-of-tables"):
            from evertable.testing.coverage import note_branches

            note_branches(request.config, one)
        one.close()


@pytest.fixture
def pipeline(
    request: pytest.FixtureRequest, pipeline_of: Callable[[Pipeline | str], PipelineUnderTest]
) -> PipelineUnderTest:
    """The pipeline of the test's folder or of one above it, its sources played by the test."""
    from evertable.testing.finding import pipeline_file

    return pipeline_of(pipeline_file(request.node, request.config))


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A real Kafka broker on loopback, one for the run; `kafka_broker.address` says where."""
    from evertable.testing.broker import Broker

    with _or_skipped(Broker(), "no Kafka broker here") as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real Postgres server on loopback, one for the run; `postgres.url` says where."""
    from evertable.testing.postgres import Postgres

    with _or_skipped(Postgres(), "no Postgres here") as server:
        yield server


@contextmanager
def _or_skipped(server: Broker | Postgres, said: str) -> Iterator[Any]:
    """Tests are skipped where something has to be installed first; what is there has to work."""
    from evertable.errors import NotReady

    try:
        server.__enter__()
    except NotReady as e:
        why = e.findings[0]
        if why.code.endswith("_MISSING"):
            pytest.skip(f"{said}: {why.message}; {why.hint}")
        raise
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def check_snapshot(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compares what `check` says of the pipeline with what it said when the test was written."""
    from evertable.testing.snapshots import Snapshot

    return Snapshot(request).compare
