"""What can be seen of stateful functions of the user's, from their source; none of them is run."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from evertable.model.facts import Code

_VARIABLES = {"getValueState": 2, "getListState": 2, "getMapState": 3}  # where the TTL stands
_TIMERS = {"registerTimer", "setTimeoutDuration", "setTimeoutTimestamp"}
_REMOVALS = {"clear", "remove", "removeKey", "deleteIfExists"}


def code_of(node: Any) -> Code | None:
    """What a stateful operator's function says of its state; None where it cannot be seen."""
    try:
        function = _function(node)
        owner = getattr(getattr(function, "__self__", None), "_stateful_processor", None)
        sources = [inspect.getsource(one) for one in (_classes(owner) if owner else [function])]
        trees = [ast.parse(textwrap.dedent(source)) for source in sources]
    except Exception:  # pickled elsewhere, made by exec, too large to be sent in one piece
        return None
    return _read(call for tree in trees for call in ast.walk(tree) if isinstance(call, ast.Call))


def unpickled(function: Any) -> Any:
    """The Python function in one of Spark's, as it is sent to the workers."""
    from pyspark import cloudpickle

    text: str = function.command().mkString(",")
    found = cloudpickle.loads(bytes(int(number) & 0xFF for number in text.split(",")))
    return found[0] if isinstance(found, tuple) else found


def declared(processor: Any) -> tuple[dict[str, str], bool]:
    """The state variables of a processor, from its `init`, and True; what its source says, if that
    fails."""
    handle = _Handle()
    try:
        processor.init(handle)
    except Exception:  # it does more than declare, and what it wants is not here
        trees = [ast.parse(textwrap.dedent(inspect.getsource(c))) for c in _classes(processor)]
        calls = (c for tree in trees for c in ast.walk(tree) if isinstance(c, ast.Call))
        code = _read(calls)
        return {name: "ageing" if name in code.ageing else "" for name in code.states}, False
    return handle.found, True


class Declared:
    """Stands for a state variable."""


class _Handle:
    """Notes what a processor declares; gives it nothing to work with."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: Any = None) -> Any:
        return self._note("value", stateName, (schema,), ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: Any = None) -> Any:
        return self._note("list", stateName, (schema,), ttlDurationMs)

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: Any = None
    ) -> Any:
        return self._note("map", stateName, (userKeySchema, valueSchema), ttlDurationMs)

    def _note(self, kind: str, name: str, schemas: tuple[Any, ...], ttl: Any) -> Declared:
        types = [_type_of(schema) for schema in schemas]
        self.found[name] = f"{kind} {' -> '.join(types)}{f' for {ttl} ms' if ttl else ''}"
        return Declared()


def _type_of(schema: Any) -> str:
    text = schema if isinstance(schema, str) else schema.simpleString()
    return " ".join(str(text).lower().split())


def _function(node: Any) -> Any:
    return unpickled(node.functionExpr().func())


def _classes(processor: Any) -> Iterator[type]:
    """A processor's class and those of the user's that it is made from."""
    for one in type(processor).__mro__:
        if one is not object and not one.__module__.startswith("pyspark."):
            yield one


def _read(calls: Iterator[ast.Call]) -> Code:
    states: dict[str, bool] = {}
    timers = removes = False
    for call in calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in _VARIABLES:
            states[_name_of(call)] = _ages(call, _VARIABLES[name])
        timers = timers or name in _TIMERS
        removes = removes or name in _REMOVALS
    ageing = tuple(state for state, ages in states.items() if ages)
    return Code(tuple(states), ageing, timers, removes)


def _name_of(call: ast.Call) -> str:
    named = [k.value for k in call.keywords if k.arg == "stateName"]
    first = (call.args or named or [ast.Constant("?")])[0]
    return str(first.value) if isinstance(first, ast.Constant) else "?"


def _ages(call: ast.Call, position: int) -> bool:
    given = [k.value for k in call.keywords if k.arg == "ttlDurationMs"] or call.args[position:]
    return bool(given) and not (isinstance(given[0], ast.Constant) and given[0].value is None)
