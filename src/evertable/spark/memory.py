"""Streams whose rows are pushed from Python, named like those they stand for (private API, 4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class MemoryStream:
    """One use of a stream by one query; a block of rows is one step of its offset."""

    def __init__(self, session: SparkSession, schema: StructType) -> None:
        jvm: Any = session._jvm
        self._session = session
        self._jvm = jvm
        session_of_jvm = session._jsparkSession
        encoder = jvm.org.apache.spark.sql.Encoders.row(session_of_jvm.parseDataType(schema.json()))
        streaming = jvm.org.apache.spark.sql.execution.streaming
        self._stream = streaming.runtime.MemoryStream.apply(encoder, session_of_jvm)

    def frame(self, name: str | None) -> DataFrame:
        """The stream as a DataFrame, under the name of the source that it plays."""
        from pyspark.sql import DataFrame

        plan = self._stream.logicalPlan()
        if name is not None:
            naming = self._jvm.org.apache.spark.sql.catalyst.streaming
            plan = plan.withSourceIdentifyingName(naming.UserProvided(name))
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self._session._jsparkSession, plan), self._session)

    def add(self, block: Any) -> None:
        """One more block, as `block_of` makes it."""
        self._stream.addData(block)


def block_of(session: SparkSession, rows: pa.Table, schema: StructType) -> Any:
    """Rows as the JVM keeps them; no job runs for it."""
    jvm: Any = session._jvm
    frame: Any = session.createDataFrame(rows, schema)
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(frame._jdf.collectAsList())
