"""A restart that is only planned: what Spark says of a checkpoint and a query (private API, 4.3).

The metadata of the checkpoint is copied, its state is not, and the next batch is planned on the
copy: Spark compares the schemas of the state there as it would at a start. Nothing is started, and
the checkpoint is not touched.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from evertable.model.pipeline import OutputMode
from evertable.model.shape import Restart
from evertable.model.standing import Standing
from evertable.spark.execution import Moment, execution_of
from evertable.spark.secrets import redact

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What of the state's folders is metadata: of an operator, and of its first partition.
_METADATA = (
    "state/*/_metadata", "state/*/_stateSchema", "state/*/0/_metadata", "state/*/0/*/_metadata",
)  # fmt: skip
# Confs of a checkpoint that have another name while a query runs.
_RENAMED = {"spark.sql.shuffle.partitions": "spark.sql.streaming.internal.stateStore.partitions"}


def restart(frame: DataFrame, mode: OutputMode, folder: str, standing: Standing) -> Restart:
    """Plan the next batch of the checkpoint with this query."""
    if standing.last_offset < 0:
        return Restart()
    batch = standing.next_batch
    with tempfile.TemporaryDirectory(prefix="evertable-restart-") as shadow:
        _copy(folder, shadow, batch)
        moment = Moment(
            batch,
            f"file:{shadow}/state",
            standing.watermark,
            standing.watermark,
            True,
            {name: value for conf, value in standing.confs.items()
             for name in {conf, _RENAMED.get(conf, conf)}},
        )  # fmt: skip
        try:
            execution_of(frame, mode, moment)
        except Exception as e:
            return Restart(_said(e))
    return Restart()


def _copy(folder: str, shadow: str, batch: int) -> None:
    for log in ("offsets", "commits"):
        os.makedirs(os.path.join(shadow, log))
        for number in (batch - 1, batch):
            source = os.path.join(folder, log, str(number))
            if os.path.exists(source):
                shutil.copy(source, os.path.join(shadow, log))
    last = os.path.join(shadow, "offsets", str(batch))
    if batch > 0 and not os.path.exists(last):
        shutil.copy(os.path.join(shadow, "offsets", str(batch - 1)), last)
    for pattern in _METADATA:
        for found in glob.glob(os.path.join(glob.escape(folder), pattern)):
            shutil.copytree(found, os.path.join(shadow, os.path.relpath(found, folder)))
    for name in ("metadata",):
        if os.path.exists(os.path.join(folder, name)):
            shutil.copy(os.path.join(folder, name), shadow)


def _said(error: Exception) -> str:
    """Spark's own sentence."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return redact(" ".join(first.partition(" SQLSTATE")[0].split()))[:400]


def restart_after(
    before: DataFrame, before_mode: OutputMode, frame: DataFrame, mode: OutputMode
) -> Restart:
    """The same where there is no checkpoint: one is begun for the old query, in our own folder."""
    with tempfile.TemporaryDirectory(prefix="evertable-restart-") as shadow:
        os.makedirs(os.path.join(shadow, "offsets"))
        state = f"file:{shadow}/state"
        try:
            execution_of(before, before_mode, Moment(0, state, None, 0, True))
        except Exception:  # then nobody can say what it would have kept
            return Restart()
        try:
            execution_of(frame, mode, Moment(1, state, 0, 0, True))
        except Exception as e:
            return Restart(_said(e))
    return Restart()
