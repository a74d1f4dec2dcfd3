"""What `check` found, for programs: JSON, and the annotations of a CI."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evertable.cli import forecast_view
from evertable.errors import Finding
from evertable.location import shorten
from evertable.model.facts import Kept
from evertable.model.pipeline import Pipeline
from evertable.spark.secrets import redact

if TYPE_CHECKING:
    from evertable.run.analysis import Report
    from evertable.run.forecasting import Forecasted

# A promise as the table has it.
WORDS = {"exactly once": "once", "nothing kept": "not kept"}
_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def as_json(
    pipeline: Pipeline | None,
    reports: Sequence[Report],
    findings: Sequence[Finding],
    forecasts: list[Forecasted],
) -> str:
    told: dict[str, Any] = {
        "v": 1,
        "pipeline": pipeline.name if pipeline else None,
        "findings": [finding_json(finding) for finding in findings],
        "tables": [_table(report) for report in reports],
    }
    if forecasts:
        told["forecast"] = forecast_view.as_json(forecasts)
    return json.dumps(told, ensure_ascii=False)


def as_github(findings: Sequence[Finding]) -> Iterator[str]:
    """::error file=ads.yaml,line=31,title=WATERMARK_MISSING::table "cost_per_brand" …"""
    for finding in findings:
        place = finding.place
        where = [f"file={_property(shorten(place.file))}"] if place else []
        where += [f"line={place.line}"] if place and place.line else []
        properties = ",".join([*where, f"title={_property(finding.code)}"])
        lines = [finding.message, finding.detail, finding.hint and f"hint: {finding.hint}"]
        text = "\n".join(redact(line) for line in lines if line)
        yield f"::{_LEVELS[finding.severity]} {properties}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def finding_json(finding: Finding) -> dict[str, Any]:
    named = re.search(r'\b(stream|static|view|table) "([^"]+)"', finding.message)
    return {
        "code": finding.code,
        "severity": finding.severity,
        "file": finding.place.file if finding.place else None,
        "line": finding.place.line if finding.place else None,
        "object": named[1] if named else None,
        "name": named[2] if named else None,
        "message": redact(finding.message),
        "detail": redact(finding.detail),
        "hint": redact(finding.hint),
    }


def promises(report: Report) -> list[str]:
    """What a table promises through each of its sinks."""
    from evertable.check.foreseen import promise
    from evertable.sinks.registry import capabilities

    if report.analysed is None:
        return [capabilities(spec).guarantee for spec in report.table.sinks]
    seen = report.analysed.seen
    return [promise(seen, target).word for target in seen.targets]


def _table(report: Report) -> dict[str, Any]:
    table = report.table
    told: dict[str, Any] = {
        "name": table.name,
        "mode": table.output_mode,
        "key": list(report.analysed.keys) if report.analysed else None,
        "sinks": [
            {"format": spec.format, "delivery": promise}
            for spec, promise in zip(table.sinks, promises(report), strict=True)
        ],
    }
    return {**told, **_foreseen(report)}


def _foreseen(report: Report) -> dict[str, Any]:
    from evertable.check import foreseen

    if report.analysed is None:
        return {}
    seen = report.analysed.seen
    seconds = foreseen.lasts(seen)
    return {
        "modes": {
            mode: seen.plan.refusals.get(mode, True) for mode in ("append", "update", "complete")
        },
        "state": {
            "bounded": None if seen.plan.unknown else seconds is not None,
            "seconds": seconds,
            "keeps": foreseen.keeps(seen),
            "partitions": seen.plan.partitions if seen.plan.kept else 0,
            "operators": [_operator(kept) for kept in seen.plan.kept],
        },
        "emits": foreseen.emits(seen),
        "emission": foreseen.emission(seen),
        "delivery": [
            {"format": target.spec.format, **foreseen.promise(seen, target)._asdict()}
            for target in seen.targets
        ],
    }


def _operator(kept: Kept) -> dict[str, Any]:
    return {
        "kind": kept.kind,
        "keys": list(kept.keys),
        "bound": kept.bound,
        "event_time": kept.column or None,
        "seconds": kept.millis // 1000 if kept.bound == "bounded" else None,
        "window_seconds": kept.window // 1000 or None,
        "behind_seconds": kept.behind // 1000,
        "of": kept.of or None,
        "timers": kept.timers or None,
        "line": kept.place.line if kept.place else None,
    }
