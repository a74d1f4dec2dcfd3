"""Prints of the user's code: they change with what it does, not with how it is laid out.

Comments, docstrings, type hints, line numbers and the names of functions change nothing. What a
function uses counts: helpers, captured values, defaults, modules beside the pipeline, versions of
packages. Nothing is run.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import os
import re
import sys
import sysconfig
import types
from collections.abc import Mapping
from importlib import metadata
from typing import Any

_DEEPEST = 12
_LIBRARY = tuple(
    os.path.realpath(path)
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"),
                 sysconfig.get_path("platlib")}
    if path
)  # fmt: skip


def print_of(code: Any) -> str:
    """The print of a function, a class or an object of the user's."""
    told = json.dumps(_Description().of(code), sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


class CodePrints:
    """Prints of functions as Spark holds them: pickled."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def of(self, function: Any) -> str:
        """`function` is Spark's PythonFunction."""
        from evertable.spark.user_state import unpickled

        key = int(function.command().hashCode())
        if key not in self._known:
            found = unpickled(function)
            owner = getattr(getattr(found, "__self__", None), "_stateful_processor", None)
            self._known[key] = print_of(found) if owner is None else _print_of_processor(owner)
        return self._known[key]

    def variables(self, function: Any) -> dict[str, str]:
        """The state variables of a processor: name -> kind, type and time to live."""
        from evertable.spark.user_state import declared, unpickled

        found = unpickled(function)
        owner = getattr(getattr(found, "__self__", None), "_stateful_processor", None)
        return {f"state {name}": text for name, text in declared(owner)[0].items()} if owner else {}


def _print_of_processor(processor: Any) -> str:
    """Of what it does; what it declares is told by its variables."""
    from evertable.spark.user_state import Declared, declared

    _, ran = declared(processor)
    told = [_Description("init" if ran else "").of(type(processor))]
    kept = {k: v for k, v in vars(processor).items() if not isinstance(v, Declared)}
    told.append(_Description().of(kept))
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]


class _Description:
    """Values as JSON, each object once."""

    def __init__(self, without: str = "") -> None:
        self._seen: dict[tuple[int, frozenset[str]], int] = {}
        self._without = without  # a member of classes that is not looked at

    def of(self, value: Any, names: frozenset[str] = frozenset(), depth: int = 0) -> Any:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return repr(value)
        if depth > _DEEPEST:
            return "…"
        if isinstance(value, list | tuple):
            return [type(value).__name__, *(self.of(v, depth=depth + 1) for v in value)]
        if isinstance(value, set | frozenset):
            inner = [json.dumps(self.of(v, depth=depth + 1), default=str) for v in value]
            return ["set", *sorted(inner)]
        if isinstance(value, Mapping):
            pairs = [[self.of(k, depth=depth + 1), self.of(v, depth=depth + 1)]
                     for k, v in value.items()]  # fmt: skip
            return ["map", *sorted(pairs, key=str)]
        # Of a module each function names other things.
        known = (id(value), names if isinstance(value, types.ModuleType) else frozenset())
        if known in self._seen:
            return ["again", self._seen[known]]
        self._seen[known] = len(self._seen)
        return self._of_object(value, names, depth)

    def _of_object(self, value: Any, names: frozenset[str], depth: int) -> Any:
        if isinstance(value, types.ModuleType):
            return self._module(value, names, depth)
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords)
            return ["partial", *(self.of(part, depth=depth + 1) for part in parts)]
        if isinstance(value, types.MethodType):
            return ["method", self.of(value.__func__, depth=depth + 1),
                    self.of(value.__self__, depth=depth + 1)]  # fmt: skip
        if isinstance(value, staticmethod | classmethod):
            return self.of(value.__func__, depth=depth + 1)
        if isinstance(value, property):
            return ["property", *(self.of(f, depth=depth + 1) for f in (value.fget, value.fset))]
        if isinstance(value, types.FunctionType):
            return self._function(value, depth)
        if isinstance(value, re.Pattern):
            return ["pattern", value.pattern, value.flags]
        if isinstance(value, type):
            return self._class(value, depth)
        if isinstance(value, types.BuiltinFunctionType):
            return ["builtin", value.__qualname__]
        if type(value).__name__ == "UserDefinedFunction" and hasattr(value, "func"):
            return ["udf", self.of(value.func, depth=depth + 1)]
        if not _is_users(type(value).__module__):
            if hasattr(value, "tobytes"):  # an array
                return [type(value).__qualname__, _digest(value.tobytes())]
            if type(value).__module__.startswith("pandas.") and hasattr(value, "to_csv"):
                return [type(value).__qualname__, _digest(value.to_csv().encode())]
            text = repr(value)
            return [type(value).__qualname__, re.sub(r" at 0x[0-9a-f]+", "", text)[:2000]]
        return ["object", self.of(type(value), depth=depth + 1),
                self.of(getattr(value, "__dict__", {}), depth=depth + 1)]  # fmt: skip

    def _function(self, function: types.FunctionType, depth: int) -> Any:
        if not _is_users(function.__module__):
            return ["library", function.__module__, function.__qualname__,
                    _version(function.__module__)]  # fmt: skip
        code = function.__code__
        body: Any = _tree_of(code) or _bytes_of(code)
        cells = function.__closure__ or ()
        captured = {}
        for name, cell in zip(code.co_freevars, cells, strict=True):
            try:
                captured[name] = self.of(cell.cell_contents, depth=depth + 1)
            except ValueError:  # nothing in it yet
                captured[name] = "empty"
        used = _names_in(code)
        globally = {
            name: self.of(function.__globals__[name], used, depth + 1)
            for name in sorted(used)
            if name in function.__globals__ and name != "__builtins__"
        }
        inside = {
            name: _digest_of_file(name)
            for name in sorted(used)
            if name not in function.__globals__ and _file_of_users(name)
        }
        defaults = [self.of(d, depth=depth + 1)
                    for d in (function.__defaults__, function.__kwdefaults__)]  # fmt: skip
        return ["function", body, defaults, captured, globally, inside]

    def _class(self, one: type, depth: int) -> Any:
        if not _is_users(one.__module__):
            return ["library", one.__module__, one.__qualname__, _version(one.__module__)]
        members = {
            name: self.of(value, depth=depth + 1)
            for name, value in sorted(vars(one).items())
            if name not in _OF_ANY_CLASS and name != self._without
        }
        return ["class", members, [self.of(base, depth=depth + 1) for base in one.__bases__]]

    def _module(self, module: types.ModuleType, names: frozenset[str], depth: int) -> Any:
        if not _is_users(module.__name__):
            return ["package", module.__name__, _version(module.__name__)]
        return ["module", {
            name: self.of(getattr(module, name), names, depth + 1)
            for name in sorted(names) if name in vars(module)
        }]  # fmt: skip


_OF_ANY_CLASS = {
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__",
    "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl", "__slots__",
    "__dataclass_params__", "__match_args__", "__parameters__", "__orig_bases__",
}  # fmt: skip


def _is_users(module: str | None) -> bool:
    """Whether a module is none of Python's or of an installed package."""
    if module is None or module in ("__main__",):
        return True
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("pyspark", "py4j"):
        return False
    found = sys.modules.get(module) or sys.modules.get(top)
    file = getattr(found, "__file__", None)
    if file is None:
        return found is None
    return not os.path.realpath(file).startswith(_LIBRARY)


@functools.cache
def _version(module: str) -> str:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return ""
    for name in (metadata.packages_distributions().get(top) or [top])[:1]:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return ""
    return ""


def _names_in(code: types.CodeType) -> frozenset[str]:
    """Names that code looks up, in the functions inside it too."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names_in(constant)
    return frozenset(found)


def _bytes_of(code: types.CodeType) -> Any:
    """What there is where the source cannot be had."""
    constants = [_bytes_of(c) if isinstance(c, types.CodeType) else repr(c)
                 for c in code.co_consts[1 if _has_docstring(code) else 0:]]  # fmt: skip
    return [code.co_code.hex(), list(code.co_names), constants]


def _has_docstring(code: types.CodeType) -> bool:
    return bool(code.co_consts) and isinstance(code.co_consts[0], str)


def _tree_of(code: types.CodeType) -> str:
    """The syntax tree of a function, without what changes nothing; empty where it is not found."""
    try:
        stat = os.stat(code.co_filename)
        by_line = _functions_in(code.co_filename, stat.st_mtime_ns, stat.st_size)
    except (OSError, SyntaxError, ValueError):
        return ""
    found = by_line.get(code.co_firstlineno, [])
    names = code.co_varnames[: code.co_argcount]
    fitting = [node for node in found if _arguments(node) == names
               and (code.co_name == "<lambda>") == isinstance(node, ast.Lambda)]  # fmt: skip
    return ast.dump(_plain(fitting[0])) if len(fitting) == 1 else ""


_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@functools.lru_cache(maxsize=64)
def _functions_in(file: str, changed: int, size: int) -> dict[int, list[_Function]]:
    """The functions of a file by the line they begin at."""
    with open(file, encoding="utf-8") as text:
        tree = ast.parse(text.read())
    found: dict[int, list[_Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            line = min([node.lineno, *(d.lineno for d in decorators)])
            found.setdefault(line, []).append(node)
    return found


def _arguments(node: _Function) -> tuple[str, ...]:
    return tuple(a.arg for a in (*node.args.posonlyargs, *node.args.args))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _file_of_users(module: str) -> str:
    """The file of a module beside the user's others, which may not be imported yet."""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if file is None and loaded is None:
        found = (os.path.join(path or ".", f"{module}.py") for path in sys.path)
        file = next((f for f in found if os.path.isfile(f)), None)
    if file is None or os.path.realpath(file).startswith(_LIBRARY):
        return ""
    return "" if "site-packages" in file else str(file)


def _digest_of_file(module: str) -> str:
    """All of a module that a function imports when it runs, without what changes nothing."""
    try:
        with open(_file_of_users(module), encoding="utf-8") as text:
            return _digest(ast.dump(_Plainer().visit(ast.parse(text.read()))).encode())
    except (OSError, SyntaxError):
        return "unseen"


class _Plainer(ast.NodeTransformer):
    """Takes out docstrings, type hints, decorators and names of functions."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        node.type_comment = None
        first = node.body[0] if node.body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            node.body = node.body[1:] or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        node.type_comment = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def _plain(node: _Function) -> ast.AST:
    import copy

    plain = _Plainer().visit(copy.deepcopy(node))
    if not isinstance(plain, ast.Lambda):
        plain.name = "_"
        plain.decorator_list = []
    return plain  # type: ignore[no-any-return]


def source_file(code: Any) -> str:
    """Where a function or a class of the user's stands; empty where nobody knows."""
    try:
        return inspect.getsourcefile(code) or ""
    except TypeError:
        return ""
