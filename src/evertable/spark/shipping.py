"""The user's modules to Python workers, wherever those run.

What was imported before a query starts is pickled by value. What a function imports when it runs is
looked for: on this machine in the pipeline's folder, elsewhere in an archive of its modules.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ship(session: SparkSession, root: str) -> None:
    """Modules of the pipeline's folder can be used by workers from now on."""
    from evertable.spark.session import is_local

    _by_value(root)
    context = session.sparkContext
    path = context.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", "")).split(os.pathsep)
    if root in path:
        return
    # The environment is part of what a UDF is made of, so that it has to be set before.
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *path]))
    if not is_local(context.master or ""):
        with tempfile.TemporaryDirectory(prefix="evertable-modules-") as scratch:
            archive = Path(scratch, "modules.zip")
            if _archive(Path(root), archive):
                context.addPyFile(str(archive))  # which makes a copy


def _by_value(root: str) -> None:
    """Everything imported from the pipeline's folder is pickled whole from now on."""
    from pyspark import cloudpickle

    inside = os.path.realpath(root) + os.sep
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if (
            file
            and module.__name__ != "__main__"
            and os.path.realpath(file).startswith(inside)
            and "site-packages" not in file
            and not module.__name__.startswith("evertable.")
        ):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _archive(root: Path, to: Path) -> bool:
    """The modules and packages of a folder in one file; False where there are none."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in _modules(root):
            archive.write(file, file.relative_to(root))
        return bool(archive.namelist())


def _modules(root: Path) -> Iterator[Path]:
    yield from sorted(root.glob("*.py"))
    for package in sorted(p.parent for p in root.glob("*/__init__.py")):
        yield from sorted(package.rglob("*.py"))
