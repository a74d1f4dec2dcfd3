"""A logical plan, its fields fetched at once as JSON (private API, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evertable.spark.planner import seq
from evertable.spark.terms import Parsed, parsed


@dataclass(frozen=True)
class LogicalPlan:
    """A logical operator: its fields as JSON, and itself where those leave something out."""

    kind: str
    fields: Mapping[str, Any]
    inputs: tuple[LogicalPlan, ...]
    java: Callable[[], Any]

    @classmethod
    def of(cls, flat: Iterator[dict[str, Any]], java: Callable[[], Any]) -> LogicalPlan:
        fields = next(flat)

        def child(number: int) -> Callable[[], Any]:
            return lambda: java().children().apply(number)

        inputs = tuple(cls.of(flat, child(i)) for i in range(fields["num-children"]))
        return cls(fields["class"].rpartition(".")[2], fields, inputs, java)

    def expressions(self, name: str) -> list[Parsed]:
        """A field that is a list of expressions."""
        java = self.java
        return [
            parsed(one, lambda i=i: getattr(java(), name)().apply(i))  # type: ignore[misc]
            for i, one in enumerate(self.fields.get(name) or [])
        ]

    def expression(self, name: str) -> Parsed | None:
        """A field that is one expression, or none."""
        java = self.java

        def one() -> Any:
            return unwrapped(getattr(java(), name)())

        given = self.fields.get(name)
        return parsed(given, one) if given else None

    def outputs(self) -> list[tuple[int, str, str]]:
        """(id, name, type) of its columns."""
        return [
            (a.exprId().id(), str(a.name()), str(a.dataType().simpleString()))
            for a in seq(self.java().output())
        ]


def unwrapped(value: Any) -> Any:
    """What is in an Option of Scala's; any other value as it is."""
    if value is None or isinstance(value, str):
        return value
    kind = value.getClass().getSimpleName()
    return None if kind == "None$" else value.get() if kind == "Some" else value


def described(node: Any) -> str:
    """What a source without a name reads, as far as it can be seen."""
    kind = str(node.getClass().getSimpleName())
    if kind == "StreamingRelation":
        source = node.dataSource()
        options = source.options()
        format = str(source.className())
    else:
        options = node.extraOptions()
        format = str(node.sourceName())
    found = {}
    for name in _IDENTITY:
        value = unwrapped(options.get(name))
        if value is not None:
            found[name] = str(value)
    return " ".join([format, *(f"{k}={v}" for k, v in sorted(found.items()))])


_IDENTITY = ("path", "subscribe", "subscribePattern", "assign", "host", "port", "table")
