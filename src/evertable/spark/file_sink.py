"""Spark's own file sink, handed one batch at a time (private API, 4.3).

Its commit of a batch is one entry in the log of the folder, written once all files are there;
readers of the folder go by that log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkFileSink:
    """A folder that batches are added to."""

    def __init__(
        self,
        session: SparkSession,
        format: str,
        options: Mapping[str, str],
        partition_by: Sequence[str],
    ) -> None:
        jvm: Any = session._jvm
        none = jvm.scala.Option.empty()
        seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        source = jvm.org.apache.spark.sql.execution.datasources.DataSource(
            session._jsparkSession,
            format,
            seq([]),
            none,
            seq(list(partition_by)),
            none,
            jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(dict(options)),
            none,
            none,
        )
        self._jvm = jvm
        self._source = source
        self._session = session
        self._sink: Any = None

    def newest(self) -> int:
        """The newest batch of the folder, -1 for none; also where the folder is not a local one."""
        package = self._jvm.org.apache.spark.sql.execution.streaming.sinks
        path = self._source.caseInsensitiveOptions().get("path").get()
        hadoop = self._jvm.org.apache.hadoop.fs.Path(path)
        files = hadoop.getFileSystem(self._session._jsparkSession.sessionState().newHadoopConf())
        conf = self._session._jsparkSession.sessionState().conf()
        folder = package.FileStreamSink.getMetadataLogPath(files, hadoop, conf)
        if not files.exists(folder):
            return -1
        none = self._jvm.scala.Option.empty()
        version = package.FileStreamSinkLog.VERSION()
        log = package.FileStreamSinkLog(
            version, self._session._jsparkSession, folder.toString(), none
        )
        newest = log.getLatestBatchId()
        return int(newest.get()) if newest.isDefined() else -1

    def add(self, rows: DataFrame, batch: int) -> None:
        """All of a batch's rows, or none; a batch that the folder has is left out."""
        if self._sink is None:
            append = self._jvm.org.apache.spark.sql.streaming.OutputMode.Append()
            self._sink = self._source.createSink(append, rows._jdf.schema())
        self._sink.addBatch(batch, rows._jdf)
