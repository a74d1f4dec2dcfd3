"""`evertable check [FILE]`: what each table will keep, emit, refuse and promise; starts nothing."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evertable.cli import check_formats, forecast_view
from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.terminal import Terminal, clean, plural
from evertable.errors import DefinitionError, EvertableError, Finding, errors_of
from evertable.model.pipeline import Pipeline

if TYPE_CHECKING:
    from evertable.run.analysis import Report
    from evertable.run.forecasting import Asked, Forecasted
    from evertable.spark.schemas import SchemaStore


def arguments(parser: argparse.ArgumentParser) -> None:
    pipeline_arguments(parser)
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.add_argument("--explain", action="store_true", help="each table's plan, step by step")
    parser.add_argument("--svg", metavar="PATH", help="the same as a picture, into a file")
    parser.add_argument(
        "--format", choices=["text", "json", "github"], default="text", help="for people, or for CI"
    )
    parser.add_argument("--json", action="store_const", const="json", dest="format")
    forecast_view.arguments(parser)
    parser.add_argument("--about", metavar="CODE", help="what a finding means and what to do")


def command(options: argparse.Namespace) -> int:
    if options.about:
        return _about(options.about)
    from evertable.project import allows, open_pipeline

    begun = time.monotonic()
    pipeline: Pipeline | None = None
    reports: list[Report] = []
    forecasts: list[Forecasted] = []
    try:
        pipeline = open_pipeline(options.file, sets_of(options))
        asked = forecast_view.asked(options)
        reports, of_views, forecasts = reports_of(pipeline, asked)
        named = [(r.table.name, f) for r in reports for f in r.findings]
        from evertable.check.allowed import silence

        named += [("", f) for f in of_views]
        findings = _unique(silence(named, allows(pipeline), pipeline))
        code = 1 if _refuses(findings, options.strict) else 0
    except EvertableError as e:
        findings, code = list(e.findings), e.exit_code
    findings = [_with_page(finding) for finding in findings]
    if options.svg:
        _draw(options.svg, reports)
    if options.format == "json":
        print(check_formats.as_json(pipeline, reports, findings, forecasts))
    elif options.format == "github":
        for line in check_formats.as_github(findings):
            print(line)
    else:
        took = time.monotonic() - begun
        shown = forecasts if options.forecast else None
        _show(Terminal.of(sys.stdout), pipeline, reports, findings, took, options.explain, shown)
    return code


def _refuses(findings: list[Finding], strict: bool) -> bool:
    return bool(errors_of(findings)) or (strict and any(f.severity == "warning" for f in findings))


def reports_of(
    pipeline: Pipeline, asked: Asked | None
) -> tuple[list[Report], list[Finding], list[Forecasted]]:
    """Have Spark analyse every table and view. Writes nothing under the pipeline's storage."""
    from evertable.model.storage import Storage
    from evertable.run.analysis import analyse, analyse_views
    from evertable.run.opening import open_spark
    from evertable.spark import session
    from evertable.spark.schemas import SchemaStore

    with tempfile.TemporaryDirectory(prefix="evertable-check-") as scratch:
        logs = os.path.join(scratch, "logs")
        spark = open_spark(pipeline, logs=logs, quick=True)
        schemas = SchemaStore(Storage.of(pipeline).schemas, keep=False)
        confs = session.all_confs(pipeline.spark, logs=logs)
        reports = analyse(spark, confs, pipeline, schemas)
        of_views = analyse_views(spark, pipeline, schemas)
        return reports, of_views, _forecasts(pipeline, reports, schemas, asked)


def _forecasts(
    pipeline: Pipeline, reports: list[Report], schemas: SchemaStore, asked: Asked | None
) -> list[Forecasted]:
    if asked is None:
        return []
    from evertable.run.forecasting import forecast_of

    return [
        forecast_of(r.analysed.frame.sparkSession, pipeline, r.table, r.analysed, schemas, asked)
        for r in reports
        if r.analysed
    ]


def counts(pipeline: Pipeline) -> str:
    """ads.yaml: 3 streams, 1 static table, 1 view, 5 tables"""
    parts = [
        plural(len(pipeline.streams), "stream"),
        plural(len(pipeline.statics), "static table") if pipeline.statics else "",
        plural(len(pipeline.views), "view") if pipeline.views else "",
        plural(len(pipeline.tables), "table"),
    ]
    file = os.path.basename(pipeline.location.file) if pipeline.location else pipeline.name
    return f"{file}: {', '.join(p for p in parts if p)}"


def _show(
    terminal: Terminal,
    pipeline: Pipeline | None,
    reports: list[Report],
    findings: list[Finding],
    took: float,
    explained: bool,
    forecasts: list[Forecasted] | None,
) -> None:
    if pipeline is not None:
        terminal.with_time(counts(pipeline), took)
        terminal.line()
    if explained:
        from evertable.cli.explain import explain

        for report in reports:
            if report.analysed:
                explain(terminal, report.analysed.seen)
                terminal.line()
    elif terminal.live and reports and not errors_of(findings):
        _table(terminal, reports)
    if forecasts is not None and not errors_of(findings):
        forecast_view.show(terminal, forecasts)
        terminal.line()
    terminal.findings(findings)
    _summary(terminal, findings)


def _table(terminal: Terminal, reports: list[Report]) -> None:
    from evertable.check.foreseen import emits, keeps

    rows = [
        [r.table.name, r.table.output_mode, keeps(r.analysed.seen), emits(r.analysed.seen),
         "; ".join(check_formats.WORDS.get(w, w) for w in check_formats.promises(r))]
        for r in reports if r.analysed
    ]  # fmt: skip
    header = ["table", "mode", "keeps", "emits", "sink"]
    terminal.table(header, _fitted(header, rows, terminal.width), set())
    terminal.line()


def _fitted(header: list[str], rows: list[list[str]], width: int) -> list[list[str]]:
    """What is kept is cut where the lines would be too long; --explain has all of it."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    room = max(12, width - sum(widths) + widths[2] - 2 * (len(header) - 1))
    return [
        [cell if i != 2 or len(cell) <= room else cell[: room - 1] + "…" for i, cell in
         enumerate(row)] for row in rows
    ]  # fmt: skip


def _summary(terminal: Terminal, findings: list[Finding]) -> None:
    errors = errors_of(findings)
    warnings = [f for f in findings if f.severity == "warning"]
    if findings:
        terminal.line()
        said = [
            plural(len(errors), "error") if errors else "",
            plural(len(warnings), "warning") if warnings else "",
            plural(len(findings) - len(errors) - len(warnings), "note")
            if len(findings) > len(errors) + len(warnings)
            else "",
        ]
        terminal.line(", ".join(s for s in said if s))
    else:
        terminal.line(f"{terminal.mark('fine')} no findings")


def _unique(findings: list[Finding]) -> list[Finding]:
    """A broken view is found once by every table that reads it."""
    seen: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        key = (finding.code, str(finding.place) if finding.place else finding.message)
        seen.setdefault(key if finding.severity == "error" else (*key, finding.message), finding)
    return list(seen.values())


def _with_page(finding: Finding) -> Finding:
    """The finding, its page named in the hint."""
    from evertable.check.pages import FOLDER
    from evertable.check.rules import all_pages

    if finding.code not in all_pages():
        return finding
    page = f"{FOLDER}/{finding.code}.md"
    return replace(finding, hint=f"{finding.hint} ({page})" if finding.hint else f"see {page}")


def _draw(path: str, reports: list[Report]) -> None:
    from evertable.cli.explain import svg

    text = svg([r.analysed.seen for r in reports if r.analysed])
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as e:
        raise DefinitionError.of(
            "FOLDER_NOT_WRITABLE", f'"{path}" cannot be written: {e.strerror}'
        ) from e


def _about(code: str) -> int:
    """The page of a finding, as it stands in the docs."""
    from evertable.check.rules import all_pages
    from evertable.model.names import did_you_mean
    from evertable.plan.pages import all_pages as pages_of_changes

    pages = all_pages() | pages_of_changes()
    page = pages.get(code.upper())
    if page is None:
        raise DefinitionError.of(
            "COMMAND_INVALID",
            f'no rule says "{clean(code)}"',
            hint=did_you_mean(code.upper(), pages) or f"one of {', '.join(sorted(pages))}",
        )
    Terminal.of(sys.stdout).line(page.rstrip())
    return 0
