"""The user's own Python: found, imported once, and blamed fairly when it fails."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from evertable.errors import DefinitionError, EvertableError, Finding
from evertable.location import Location

_loading: list[str] = []
_one_at_a_time = threading.RLock()  # a module that is half imported looks like a whole one
_OURS = os.path.dirname(os.path.abspath(__file__))


def load_module(file: str) -> ModuleType:
    """The module in a file; its folder can be imported from, as with `python file`."""
    with _one_at_a_time:
        return _load_module(file)


def _load_module(file: str) -> ModuleType:
    path = os.path.abspath(file)
    name = os.path.splitext(os.path.basename(path))[0]
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == path:
        return loaded
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not os.path.isfile(path):
        raise DefinitionError.of("FILE_UNREADABLE", f'there is no file "{file}"')
    if loaded is not None:  # a module of that name is taken: the file gets a name of its own
        name = f"_evertable_user_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _loading.append(path)
    try:
        spec.loader.exec_module(module)
    except EvertableError:
        del sys.modules[name]
        raise
    except BaseException as e:
        del sys.modules[name]
        if isinstance(e, KeyboardInterrupt):
            raise
        raise DefinitionError(failure(e, f'"{os.path.basename(file)}" cannot be imported')) from e
    finally:
        _loading.pop()
    return module


def forget_modules(folder: str) -> None:
    """Modules of a folder are imported anew when they are asked for again."""
    below = os.path.realpath(folder) + os.sep
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and os.path.realpath(file).startswith(below) and "site-packages" not in file:
            del sys.modules[name]


def is_loading() -> bool:
    """Whether a file of the user's is being imported right now."""
    return bool(_loading)


def load_function(reference: str, root: str, place: Location | None) -> Callable[..., Any]:
    """The function named by `module.py:function`, relative to the pipeline's folder."""
    file, _, name = reference.rpartition(":")
    if not file or not name.isidentifier():
        raise DefinitionError.of(
            "FUNCTION_UNKNOWN",
            f'"{reference}" names no function',
            place=place,
            hint='as in "module.py:function"',
        )
    if not file.endswith(".py"):
        file += ".py"
    path = os.path.join(root, file)
    if not os.path.isfile(path):
        raise DefinitionError.of(
            "FUNCTION_UNKNOWN",
            f'there is no file "{file}"',
            place=place,
            detail=f'"{reference}" is looked for beside the pipeline',
        )
    function = getattr(load_module(path), name, None)
    if not callable(function):
        raise DefinitionError.of(
            "FUNCTION_UNKNOWN", f'"{file}" has no function "{name}"', place=place
        )
    return function  # type: ignore[no-any-return]


def parameters(function: Callable[..., Any]) -> list[str]:
    """The names of what a function asks for."""
    return list(inspect.signature(function).parameters)


def place_of(function: Callable[..., Any]) -> Location | None:
    """Where a function begins."""
    code = getattr(function, "__code__", None)
    return Location(code.co_filename, code.co_firstlineno) if code else None


def failure(error: BaseException, message: str, code: str = "USER_CODE_FAILED") -> Finding:
    """A finding that shows the user's own frames only, the innermost one as its place."""
    if isinstance(error, SyntaxError) and error.filename:
        return Finding(code, f"{message}: {error.msg}", Location(error.filename, error.lineno or 0))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_user_file(f.filename)]
    place = Location(frames[-1].filename, frames[-1].lineno or 0) if frames else None
    first_line = str(error).strip().partition("\n")[0]
    return Finding(
        code,
        f"{message}: {type(error).__name__}: {first_line}".rstrip(": "),
        place,
        detail="\n".join(
            f"{Location(f.filename, f.lineno or 0)} in {f.name}: {f.line}" for f in frames
        ),
    )


def _is_user_file(filename: str) -> bool:
    if filename.startswith("<") and not filename.startswith("<ipython"):
        return False
    parts = filename.replace(os.sep, "/").split("/")
    library = {"site-packages", "pyspark", "py4j"}.intersection(parts)
    return (
        not library
        and not os.path.abspath(filename).startswith(_OURS)
        and (not filename.startswith(os.path.dirname(os.__file__)))
    )
