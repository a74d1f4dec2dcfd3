"""Pipelines for tests: from a model, a file or YAML text; and the one Spark that runs them all."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evertable.model.pipeline import Pipeline
from evertable.project import checked, open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def model_of(given: Pipeline | str, root: str) -> Pipeline:
    """A model as it is, a file's, or that of YAML text whose paths start in `root`."""
    if not isinstance(given, str):
        return checked(given)
    if "\n" not in given:
        return open_pipeline(os.path.join(root, given))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pipeline.yaml")
        file.write_text(given)
        return replace(open_pipeline(str(file)), root=root)


def open_for_tests(pipeline: Pipeline, logs: str) -> SparkSession:
    """A session on this machine; its sources are played, so that none of their connectors is needed
    but what decodes their records."""
    from evertable.run.opening import open_spark

    streams = tuple(
        replace(s, format="json")
        for s in pipeline.streams
        if s.decode and s.decode.format == "avro"
    )
    needed = replace(pipeline, streams=streams, tables=())
    confs = {"master": "local[2]", **needed.spark}
    return open_spark(replace(needed, spark=confs), logs=logs, quick=True)
