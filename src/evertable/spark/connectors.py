"""Connector jars: named exactly in a lock, fetched once, and never used without their digest.

`connectors.json` names for each connector one set of jars or several, best first; the first set
that the repository has is taken. They come through the Ivy that PySpark ships, in a process and a
cache of its own: Spark's own `spark.jars.packages` stops at a half-filled ~/.m2, and its reason
never reaches Python.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.sax.saxutils import quoteattr

from evertable.errors import NotReady
from evertable.location import Location
from evertable.spark.java import cache_folder, find_java
from evertable.spark.secrets import redact

REPOSITORY = "EVERTABLE_REPOSITORY"  # the URL of a mirror, in the layout of Maven
_PATIENCE = 600  # seconds for one set of jars
_UNREACHABLE = re.compile(
    r"UnknownHost|Connection refused|Server access [Ee]rror|timed out|SSLHandshake|"
    r"Network is unreachable|Host .* not found"
)


@dataclass(frozen=True)
class Jar:
    """One locked artifact."""

    artifact: str  # group:name:version
    sha256: str

    @property
    def file(self) -> str:
        _, name, version = self.artifact.split(":")
        return f"{name}-{version}.jar"


@dataclass(frozen=True)
class JarSet:
    """Jars that were proved to run together."""

    name: str
    jars: tuple[Jar, ...]


@dataclass(frozen=True)
class Connector:
    """What can be fetched: its sets of jars, best first."""

    name: str
    purpose: str
    sets: tuple[JarSet, ...]


@cache
def lock() -> Mapping[str, Connector]:
    """The lock that came with this version of Evertable."""
    return read_lock(Path(__file__).with_name("connectors.json").read_text())


def read_lock(text: str) -> Mapping[str, Connector]:
    return {
        name: Connector(
            name,
            entry["for"],
            tuple(JarSet(s["name"], tuple(Jar(**jar) for jar in s["jars"])) for s in entry["sets"]),
        )
        for name, entry in json.loads(text).items()
    }


def folder() -> Path:
    return Path(cache_folder(), "jars")


def present(connector: Connector) -> list[Path] | None:
    """The jars of the best set that is here whole, each with the digest that was locked."""
    for one in connector.sets:
        files = [folder() / jar.file for jar in one.jars]
        if all(_is(file, jar) for file, jar in zip(files, one.jars, strict=True)):
            return files
    return None


def get(
    connector: Connector,
    say: Callable[[str], None] = lambda text: None,
    *,
    what: str = "",
    place: Location | None = None,
) -> list[Path]:
    """The jars, fetched if they are not here; NotReady that says why they cannot be had."""
    here = present(connector)
    if here is not None:
        return here
    say(f"fetching the jars for {connector.purpose}, once for this machine…")
    reasons: list[str] = []
    for one in connector.sets:
        reason = _fetch(one)
        if reason is None:
            found = present(connector)
            assert found is not None
            return found
        reasons.append(f"{one.name}: {reason}")
    needs = f"{what} needs" if what else "this needs"
    raise NotReady.of(
        "CONNECTOR_MISSING",
        f"{needs} {connector.sets[0].name.partition(',')[0]}",
        place=place,
        detail="\n".join([f"it is not in {folder()}", *reasons]),
        hint=f"on a machine with network: evertable doctor --fetch {connector.name} --to jars.zip\n"
        "then here: evertable doctor --add jars.zip\n"
        f"a mirror is named with {REPOSITORY}=URL",
    )


def bundle(connectors: Iterable[Connector], to: Path) -> list[str]:
    """Jars in one file, for a machine without network; the names of those in it."""
    files = {file.name: file for connector in connectors for file in get(connector)}
    draft = to.with_name(f".{to.name}.{os.getpid()}")
    with zipfile.ZipFile(draft, "w") as archive:  # jars are compressed already
        for name, file in sorted(files.items()):
            archive.write(file, name)
    draft.replace(to)
    return sorted(files)


def add(from_bundle: Path) -> list[str]:
    """Jars out of a bundle: those that the lock knows, and none that differs from it."""
    known = {jar.file: jar for c in lock().values() for s in c.sets for jar in s.jars}
    try:
        with zipfile.ZipFile(from_bundle) as archive:
            inside = {n: archive.read(n) for n in archive.namelist() if n in known}
    except (OSError, zipfile.BadZipFile) as e:
        reason = getattr(e, "strerror", None) or "it is no zip file"
        raise NotReady.of(
            "BUNDLE_UNREADABLE", f'bundle "{from_bundle}" cannot be read: {reason}'
        ) from e
    if not inside:
        raise NotReady.of(
            "BUNDLE_UNREADABLE",
            f'bundle "{from_bundle}" holds no jar that this version of Evertable knows',
            hint="make it with the same version: evertable doctor --fetch kafka --to jars.zip",
        )
    for name, data in inside.items():
        if hashlib.sha256(data).hexdigest() != known[name].sha256:
            raise NotReady.of(
                "CONNECTOR_DAMAGED",
                f'"{name}" in bundle "{from_bundle}" is not the jar that the lock names',
                detail="its SHA-256 differs; nothing was added",
            )
    for name, data in inside.items():
        _place(name, data)
    return sorted(inside)


def _fetch(jars: JarSet) -> str | None:
    """Bring a set of jars here; why it could not be had, else None."""
    missing = [jar for jar in jars.jars if not _is(folder() / jar.file, jar)]
    with tempfile.TemporaryDirectory(prefix="evertable-ivy-") as scratch:
        said = _ivy(missing, Path(scratch))
        for jar in missing:
            file = Path(scratch, "out", jar.file)
            if not file.is_file():
                return _reason(said, jar)
            data = file.read_bytes()
            if hashlib.sha256(data).hexdigest() != jar.sha256:
                return f"{jar.file} from the repository is not the jar that the lock names"
            _place(jar.file, data)
    return None


def _ivy(jars: Sequence[Jar], scratch: Path) -> str:
    """Run Ivy over exact artifacts, without what they depend on; everything it printed."""
    import pyspark

    program = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    Path(scratch, "ivy.xml").write_text(_ivy_file(jars))
    command = [
        os.path.join(find_java().home, "bin", "java"), "-jar", str(program),
        "-cache", str(scratch / "cache"), "-ivy", str(scratch / "ivy.xml"), "-confs", "default",
        "-retrieve", str(scratch / "out" / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    mirror = os.environ.get(REPOSITORY)
    if mirror:
        Path(scratch, "settings.xml").write_text(_settings(mirror))
        command += ["-settings", str(scratch / "settings.xml")]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return "timed out"
    return done.stdout + done.stderr


def _ivy_file(jars: Sequence[Jar]) -> str:
    # Without conf="default->master" a jar's sources come too, under the same name.
    parts = [jar.artifact.split(":") for jar in jars]
    dependencies = "".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} "
        'transitive="false" conf="default-&gt;master"/>'
        for group, name, version in parts
    )
    return (
        '<ivy-module version="2.0"><info organisation="evertable" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _settings(mirror: str) -> str:
    return (
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" root={quoteattr(mirror)} m2compatible="true"/>'
        "</resolvers></ivysettings>"
    )


def _reason(said: str, jar: Jar) -> str:
    where = redact(os.environ.get(REPOSITORY, "Maven Central"))
    if _UNREACHABLE.search(said):
        return f"{where} did not answer"
    group, name, version = jar.artifact.split(":")
    if f"{group}#{name};{version}: not found" in said:
        return f"{where} does not have {jar.artifact}"
    last = next((line.strip() for line in reversed(said.splitlines()) if "rror" in line), "")
    return redact(last) or f"{where} did not give {jar.artifact}"


def _is(file: Path, jar: Jar) -> bool:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False


def _place(name: str, data: bytes) -> None:
    """Whole or not at all; two processes may fetch at once."""
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder() / f".{name}.{os.getpid()}"
    draft.write_bytes(data)
    draft.replace(folder() / name)
