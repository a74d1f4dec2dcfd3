"""A pipeline as another git revision has it, in a folder of its own for a while."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from evertable.errors import DefinitionError, Finding
from evertable.user_code import forget_modules


@contextmanager
def checked_out(path: str, revision: str) -> Iterator[str]:
    """The pipeline's folder as a revision has it; where its file is."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        done = subprocess.run(
            ["git", "-C", folder, "archive", "--format=tar", revision, "."],
            capture_output=True, check=False,
        )  # fmt: skip
    except OSError as e:
        raise DefinitionError(Finding("REVISION_UNKNOWN", "git is not installed")) from e
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise DefinitionError(
            Finding(
                "REVISION_UNKNOWN",
                f'git cannot give revision "{revision}" of this folder',
                detail=said[-1] if said else "",
                hint="commit the pipeline first, or name a branch, a tag or a commit",
            )
        )
    with tempfile.TemporaryDirectory(prefix="evertable-then-") as there:
        with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
            archive.extractall(there, filter="data")
        file = Path(there, os.path.basename(path))
        if not file.exists():
            raise DefinitionError(
                Finding("REVISION_UNKNOWN", f'revision "{revision}" has no {file.name} here')
            )
        for name in os.listdir(folder):  # what git does not keep: data, storage
            if not os.path.lexists(os.path.join(there, name)):
                os.symlink(os.path.join(folder, name), os.path.join(there, name))
        forget_modules(folder)  # one of the same name is to be that of then
        yield str(file)
