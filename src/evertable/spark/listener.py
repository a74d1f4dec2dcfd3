"""Progress of queries as JSON text: one call into the JVM an event, not one a field."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ProgressListener:
    """Passes on each progress and each idle moment of the queries of one session."""

    def __init__(self, progress: Callable[[str], None], idle: Callable[[str], None]) -> None:
        self._progress = progress
        self._idle = idle
        self._wrapper: Any = None

    def attach(self, session: SparkSession) -> None:
        from pyspark.java_gateway import ensure_callback_server_started

        jvm: Any = session._jvm
        gateway = session.sparkContext._gateway
        assert gateway is not None
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self._wrapper = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(self)
        session._jsparkSession.streams().addListener(self._wrapper)

    def detach(self, session: SparkSession) -> None:
        if self._wrapper is not None:
            session._jsparkSession.streams().removeListener(self._wrapper)
            self._wrapper = None

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        self._progress(event.progress().json())

    def onQueryIdle(self, event: Any) -> None:
        self._idle(event.timestamp())

    def onQueryTerminated(self, event: Any) -> None:
        pass

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
