"""What in a query may go wrong later, read from its plans as plain facts (private API, 4.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evertable.location import Location
from evertable.model.facts import Risk
from evertable.spark.planner import plain
from evertable.spark.state_operators import is_mark, located
from evertable.spark.trees import Node, Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_THE_QUERY = ("AnalysisException", "Unsupported", "SparkException", "AssertionError")


def failure_of_planning(error: Exception) -> str | None:
    """What Spark would end the query with; None where it was not the query that failed."""
    java: Any = getattr(error, "java_exception", None)
    if java is None:
        from pyspark.errors.exceptions.captured import CapturedException

        if not isinstance(error, CapturedException):
            return None
        return str(error)
    name = str(java.getClass().getName())
    return str(java.getMessage()) if any(part in name for part in _OF_THE_QUERY) else None


def risks(session: SparkSession, query: Query, texts: Mapping[str, Location]) -> Iterator[Risk]:
    """Expressions that raise on a value that does not fit, as ANSI mode has them do."""
    ansi = session.conf.get("spark.sql.ansi.enabled") == "true"
    seen = set()
    for node, expression in query.expressions:
        found = _risk(expression, expression.kind, ansi)
        if found and found[0] not in seen and node.isStreaming():
            seen.add(found[0])
            yield Risk(*found, located(expression, texts))


def _risk(expression: Node, kind: str, ansi: bool) -> tuple[str, str] | None:
    if kind == "Cast":
        target = str(expression.dataType().sql())
        if (
            expression.evalMode().toString() != "ANSI"
            or expression.child().dataType().typeName() != "string"
            or expression.child().foldable()
            or target in ("STRING", "BINARY", "INTERVAL")
            or target.startswith("VARCHAR")
        ):
            return None
        text = plain(expression.sql())
        return text, re.sub(r"^CAST", "try_cast", text)
    if kind in ("ParseToTimestamp", "ParseToDate"):
        text = expression.left()
        if not ansi or text.dataType().typeName() != "string" or text.foldable():
            return None
        name = "to_timestamp" if kind == "ParseToTimestamp" else "to_date"
        shown = plain(text.sql())
        return f"{name}({shown})", f"try_{name}({shown})"
    if kind == "GetArrayItem" and expression.failOnError():
        text = plain(expression.sql())
        return text, f"get({plain(expression.child().sql())}, …)"
    if kind == "ElementAt" and _fails(expression):
        if expression.left().dataType().typeName() != "array":
            return None
        return plain(expression.sql()), "try_element_at(…)"
    if kind in ("Divide", "IntegralDivide", "Remainder") and _fails(expression):
        if expression.right().foldable() or "count(" in expression.right().sql().lower():
            return None
        return plain(expression.sql()), "try_divide(…)" if kind != "Remainder" else "try_mod(…)"
    return None


def _fails(expression: Any) -> bool:
    try:
        return bool(expression.failOnError())
    except Exception:  # this kind of expression has no such method
        return False


def unmarked_union(root: Node) -> bool:
    """Whether some branches of a union have a watermark and others not."""
    for node in root.walk():
        if node.kind == "UnionExec":
            marked = [any(is_mark(n) for n in child.walk()) for child in node.inputs]
            if any(marked) and not all(marked):
                return True
    return False


_BY_BATCH = {
    "FlatMapGroupsInPandasExec": "applyInPandas",
    "FlatMapGroupsInArrowExec": "applyInArrow",
    "FlatMapCoGroupsInPandasExec": "cogroup().applyInPandas",
    "FlatMapCoGroupsInArrowExec": "cogroup().applyInArrow",
}


def by_batch(root: Node) -> tuple[str, ...]:
    """Functions over groups that see the rows of one batch only."""
    found = [_BY_BATCH[node.kind] for node in root.walk() if node.kind in _BY_BATCH]
    return tuple(dict.fromkeys(found))


def moved_filters(query: Query, root: Node) -> tuple[str, ...]:
    """Conditions that stand above a watermark in the query, and below it in what Spark runs."""
    marks = [node for node in root.walk() if is_mark(node)]
    written = [node for node in query.root.walk() if node.kind == "EventTimeWatermark"]
    before = Counter(c for mark in written for c in _conditions(mark, "Filter"))
    found = Counter(c for mark in marks for c in _conditions(mark, "FilterExec"))
    return tuple(dict.fromkeys(found - before))


def _conditions(above: Node, kind: str) -> Iterator[str]:
    for node in above.walk():
        if node.kind == kind:
            for part in conjuncts(node.condition()):
                if part.getClass().getSimpleName() != "IsNotNull":
                    yield plain(re.sub(r"`?\b\w+`?\.(?=`)", "", part.sql()))


def conjuncts(condition: Any) -> Iterator[Any]:
    """The parts of a condition that all have to be true."""
    if condition.getClass().getSimpleName() == "And":
        yield from conjuncts(condition.left())
        yield from conjuncts(condition.right())
    else:
        yield condition


def largest_static(query: Query) -> int:
    """Bytes of the largest bounded table that a query reads; each batch reads it again."""
    sizes = [
        int(str(node.stats().sizeInBytes()))
        for node in query.root.walk()
        if not node.inputs
        and not node.kind.startswith("StreamingRelation")
        and node.kind not in ("LocalRelation", "OneRowRelation")
        and not node.isStreaming()
    ]
    return max(sizes, default=0)
