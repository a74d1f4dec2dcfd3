"""An archive of the JVM's loaded classes: made once for an installation, it halves the start.

The archive fits one Java and one set of jars; its name says which. A JVM that finds it unfit
ignores it without a word, so it can slow nothing down and break nothing.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from evertable.spark.java import Java, cache_folder


def archive(java: Java) -> Path:
    """Where the archive for this Java and this PySpark is, or would be."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    # The JVM compares sizes and times too: jars that were installed anew need an archive anew.
    files = sorted((jar.name, jar.stat()) for jar in jars.glob("*.jar"))
    names = [f"{name} {stat.st_size} {int(stat.st_mtime)}" for name, stat in files]
    key = "\n".join([java.home, java.version, str(jars), *names])
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return Path(cache_folder(), "classes", f"spark-{pyspark.__version__}-{digest}.jsa")


def flags(java: Java) -> str:
    """JVM flags that use the archive; empty without one."""
    file = archive(java)
    if not file.is_file() or " " in str(file):
        return ""
    return f"-XX:SharedArchiveFile={file} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"


def make_flags(draft: Path) -> str:
    """JVM flags that write an archive when the JVM ends."""
    os.makedirs(draft.parent, mode=0o700, exist_ok=True)
    return f"-XX:ArchiveClassesAtExit={draft} -Xlog:cds=off -Xlog:cds+dynamic=off"


def makes_none(file: Path) -> bool:
    """Whether this Java was asked for an archive and made none (trimmed runtimes do not)."""
    return file.with_suffix(".none").exists()


def note_that_it_makes_none(file: Path) -> None:
    file.with_suffix(".none").touch()
