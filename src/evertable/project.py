"""A file named on the command line, to a pipeline: every problem of it at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from evertable.check.allowed import Allow, allows_in, files_of
from evertable.check.known import Known
from evertable.check.model_rules import check_model
from evertable.define import yaml_file
from evertable.define.builder import PipelineBuilder
from evertable.errors import DefinitionError, EvertableError, Finding, Refused, errors_of
from evertable.location import Location
from evertable.model.pipeline import Pipeline
from evertable.run.events import Event
from evertable.sinks.registry import SINKS
from evertable.sources.registry import SOURCES
from evertable.user_code import load_module


def discover(folder: str = ".") -> str:
    """The pipeline of a folder: the only YAML file with `tables:`, else pipeline.py."""
    candidates = sorted(
        str(path)
        for pattern in ("*.yaml", "*.yml")
        for path in Path(folder).glob(pattern)
        if _has_tables(path)
    )
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise DefinitionError.of(
            "PIPELINE_AMBIGUOUS",
            "this folder has several pipelines",
            detail=", ".join(candidates),
            hint=f"name one: evertable … {candidates[0]}",
        )
    python = os.path.join(folder, "pipeline.py")
    if os.path.isfile(python):
        return os.path.normpath(python)
    raise DefinitionError.of(
        "PIPELINE_MISSING",
        "this folder has no pipeline",
        detail="looked for a *.yaml with `tables:` at its top, and for pipeline.py",
        hint="`evertable new ads` makes a first one",
    )


def _has_tables(path: Path) -> bool:
    try:
        return any(line.startswith("tables:") for line in path.read_text().splitlines())
    except (OSError, UnicodeDecodeError):
        return False


def open_pipeline(file: str | None, sets: Mapping[str, str] | None = None) -> Pipeline:
    """The model of a pipeline, without a single finding; else an error with all of them."""
    path = file or discover()
    if os.path.isdir(path):
        path = discover(path)
    if not os.path.exists(path):
        raise DefinitionError.of(
            "PIPELINE_MISSING", f'there is no file "{path}"', hint="`evertable new` makes one"
        )
    if path.endswith(".py"):
        if sets:
            raise DefinitionError.of("PARAMETER_UNKNOWN", "--set is for YAML pipelines")
        return checked(*pipeline_in(path).defined())
    pipeline, findings = yaml_file.read(path, sets)
    return checked(pipeline, findings)


def pipeline_in(file: str) -> PipelineBuilder:
    """The one pipeline that a Python file defines."""
    module = load_module(file)
    found = [v for v in vars(module).values() if isinstance(v, PipelineBuilder)]
    unique = list({id(p): p for p in found}.values())
    if len(unique) != 1:
        raise DefinitionError.of(
            "PIPELINE_AMBIGUOUS" if unique else "PIPELINE_MISSING",
            f'"{file}" defines {len(unique) or "no"} pipelines at its top level',
            place=Location(file),
            hint='ads = evertable.Pipeline("ads")',
        )
    return unique[0]


def listener_in(pipeline: Pipeline) -> Callable[[Event], None]:
    """Whom a pipeline's Python file wants told of what happens; nobody for YAML."""
    file = pipeline.location.file if pipeline.location else ""
    builder = pipeline_in(file) if file.endswith(".py") else None
    tell: Callable[[Event], None] = getattr(builder, "tell", lambda event: None)
    return tell


def checked(pipeline: Pipeline | None, findings: list[Finding] | None = None) -> Pipeline:
    """The pipeline, if nothing is wrong with it. Some of it may be missing with `findings`."""
    wrong = list(findings or ())
    kind: type[EvertableError] = DefinitionError if wrong else Refused
    if pipeline is not None:
        more = list(errors_of(check_model(Known(pipeline, SOURCES, SINKS))))
        if any(f.code not in ANSWERS for f in more):
            kind = DefinitionError
        wrong += more
    if wrong:
        raise kind(*yaml_file.in_order(wrong))
    assert pipeline is not None
    return pipeline


def allows(pipeline: Pipeline) -> list[Allow]:
    """The comments in a pipeline's files that silence findings."""
    texts = {}
    for file in files_of(pipeline):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            texts[file] = Path(file).read_text(encoding="utf-8")
    return allows_in(pipeline, texts)


# Findings that say no to a pipeline that is understood; all others mean that it is not.
ANSWERS = {
    "SINK_MODE",
    "TRIGGER_NOT_SUPPORTED",
    "WATERMARK_MISSING",
    "KEY_UNUSED",
    "SINK_PARTITIONS",
}
