"""A real Kafka broker of one node, on loopback, for tests and first steps: nothing but Java.

>>> with Broker() as broker:                                                    # doctest: +SKIP
...     broker.create_topic("clicks", 4)
...     print(broker.address)
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from evertable.errors import NotReady
from evertable.spark import connectors
from evertable.spark.java import find_java
from evertable.testing.kafka_wire import create_topic
from evertable.testing.ports import free_ports, is_free

_READY = "Kafka Server started"
_PATIENCE = 60.0  # seconds; 2 on a quiet machine
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class Broker:
    """Started by `start()` or `with`, stopped by `stop()`; a folder given to it is kept."""

    def __init__(
        self,
        folder: str | None = None,
        *,
        port: int | None = None,
        heap: str = "512m",
        settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._say = say
        self._keeps = folder is not None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="evertable-broker-"))
        free, self._controller = free_ports(2)
        self.port = port or free
        self._heap = heap
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What goes into kafka.bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Broker:
        """Return when the broker answers."""
        if not is_free(self.port):
            raise NotReady.of(
                "PORT_IN_USE",
                f"something listens on 127.0.0.1:{self.port} already",
                hint="choose another --port, or leave it out",
            )
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._format()
        config = self.folder / "server.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in self._config().items()))
        log = self.folder / "broker.log"
        begun = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                self._java(*_QUICK, f"-Xmx{self._heap}", "kafka.Kafka", str(config)),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us, who stop it in good order
            )
        self._until_ready(log, begun)
        return self

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Make a topic; settings as in `retention_ms="1000"`."""
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        error = create_topic(self.address, name, partitions, configs)
        if error:
            raise NotReady.of("TOPIC_NOT_MADE", f'topic "{name}" could not be made', detail=error)

    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """As a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if not self._keeps:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Broker:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _config(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "log"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "num.network.threads": "2",
            "num.io.threads": "2",
            "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
            **self._settings,
        }

    def _format(self) -> None:
        """What Kafka's storage tool leaves behind, without a JVM for it."""
        properties = self.folder / "log" / "meta.properties"
        if properties.exists():
            return
        properties.parent.mkdir(mode=0o700, exist_ok=True)
        properties.write_text(f"version=1\ncluster.id={_id()}\nnode.id=1\ndirectory.id={_id()}\n")

    def _java(self, *arguments: str) -> list[str]:
        jars = connectors.get(connectors.lock()["broker"], self._say, what="`evertable broker`")
        log = Path(__file__).with_name("log4j2_broker.properties")
        return [
            os.path.join(find_java().home, "bin", "java"),
            f"-Dlog4j2.configurationFile={log}",
            "-cp",
            os.pathsep.join(map(str, jars)),
            *arguments,
        ]

    def _until_ready(self, log: Path, begun: int) -> None:
        assert self._process is not None
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            with log.open("rb") as file:
                file.seek(begun)
                said = file.read().decode(errors="replace")
            if _READY in said:
                return
            if self._process.poll() is not None:
                lines = [line for line in said.splitlines() if "ERROR" in line or "rror:" in line]
                raise NotReady.of(
                    "BROKER_NOT_STARTED",
                    "the broker ended while it was starting",
                    detail=(lines or said.splitlines() or ["it said nothing"])[-1],
                    hint=f"its log is {log}",
                )
            time.sleep(0.05)
        self.stop()
        raise NotReady.of(
            "BROKER_NOT_STARTED",
            f"the broker did not answer within {_PATIENCE:.0f} s",
            hint=f"its log is {log}",
        )


def _id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
