"""Spark's plans and expressions as trees that are fetched once: each question to the JVM costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Node:
    """One operator or expression, and those below it. What else it has is asked of the JVM."""

    def __init__(self, java: Any) -> None:
        self.java = java
        self.kind = str(java.getClass().getSimpleName())
        children = java.children()
        self.inputs = [Node(children.apply(i)) for i in range(children.length())]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.java, name)

    def walk(self) -> Iterator[Node]:
        """This one and all below it, from the top down."""
        yield self
        for one in self.inputs:
            yield from one.walk()


class Query:
    """The analyzed plan of a query, with every expression in it."""

    def __init__(self, analyzed: Any) -> None:
        self.root = Node(analyzed)
        # operators with one of their expressions each
        self.expressions: list[tuple[Node, Node]] = []
        for node in self.root.walk():
            found = node.expressions()
            for i in range(found.length()):
                self.expressions += [(node, part) for part in Node(found.apply(i)).walk()]
