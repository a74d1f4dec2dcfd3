"""What `check` said of a pipeline when a test was written, kept in a file beside the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evertable.errors import Finding
from evertable.model.storage import Storage
from evertable.testing.finding import pipeline_file


class Snapshot:
    """The fixture `check_snapshot`: call it, with a file where the pipeline is another one."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def compare(self, file: str | None = None) -> None:
        """Fails with the lines that differ; `--update-snapshots` keeps what is said now."""
        node, config = self._request.node, self._request.config
        path = str(node.path.parent / file) if file else pipeline_file(node, config)
        kept = node.path.parent / "snapshots" / f"{Path(path).stem}.check.txt"
        said = self._said(path)
        if config.getoption("--update-snapshots"):
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(said)
            return
        if not kept.exists():
            pytest.fail(f"{kept} is not there yet: pytest --update-snapshots makes it", False)
        before = kept.read_text()
        if before != said:
            import difflib

            lines = difflib.unified_diff(
                before.splitlines(), said.splitlines(), "before", "now", lineterm="", n=1
            )
            text = "\n".join(lines)
            pytest.fail(f"check says something else of {Path(path).name}:\n{text}", False)

    def _said(self, path: str) -> str:
        from evertable.check.foreseen import emits, keeps
        from evertable.run.analysis import analyse, analyse_views
        from evertable.spark import session as spark_session
        from evertable.spark.schemas import SchemaStore
        from evertable.testing.sessions import model_of

        pipeline = model_of(path, "")
        spark: Any = self._request.getfixturevalue("evertable_spark")(pipeline)
        schemas = SchemaStore(Storage.of(pipeline).schemas, keep=False)
        logs = str(self._request.getfixturevalue("tmp_path"))
        confs = spark_session.all_confs(dict(pipeline.spark), logs=logs)
        reports = analyse(spark, confs, pipeline, schemas)
        lines = []
        for report in reports:
            keys = ", ".join(report.analysed.keys) if report.analysed else ""
            lines.append(f"{report.table.name}: {report.table.output_mode}, key: {keys or 'none'}")
            if report.analysed:
                seen = report.analysed.seen
                lines.append(f"  keeps {keeps(seen)}; emits {emits(seen)}")
            lines += [_line(finding) for finding in report.findings]
        lines += [_line(finding) for finding in analyse_views(spark, pipeline, schemas)]
        return "\n".join(lines) + "\n"


def _line(finding: Finding) -> str:
    """Without the folder and the line, which move with every edit."""
    return f"  {finding.severity} {finding.code}: {finding.message}"
