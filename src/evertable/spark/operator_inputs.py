"""What comes to each stateful operator of a query, over a bounded piece of its input (private API).

The same query built over streams and over bounded pieces gives two plans of one shape, but for the
watermarks; they are walked side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evertable.spark import planner
from evertable.spark.planner import seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATEFUL = {
    "Aggregate": "groupingExpressions",
    "Deduplicate": "keys",
    "DeduplicateWithinWatermark": "keys",
    "Distinct": "output",
    "FlatMapGroupsInPandasWithState": "groupingAttributes",
    "TransformWithStateInPySpark": "groupingAttributes",
    "GlobalLimit": "output",
}


class NotAlike(Exception):
    """The two plans differ in more than their watermarks."""


@dataclass(frozen=True)
class Came:
    """Rows that came to an operator, and how often its keys did: {1: keys that came once, …}."""

    rows: int
    counts: Counter[int]


def came(streaming: DataFrame, bounded: DataFrame) -> list[tuple[Came, ...]]:
    """Of each stateful operator, from the sink down: what came; of a join, from each side."""
    return [
        tuple(_counted(bounded, child, keys) for child, keys in _inputs(node))
        for node in _stateful(planner.analyzed(streaming), planner.analyzed(bounded))
    ]


def _stateful(streaming: Any, bounded: Any) -> Iterator[Any]:
    """The nodes of the bounded plan whose like in the other one keeps state."""
    while streaming.nodeName() == "EventTimeWatermark":
        streaming = streaming.children().apply(0)
    name = streaming.nodeName()
    if not streaming.isStreaming() or name.startswith("StreamingRelation"):
        return
    if name.replace("WithinWatermark", "") != bounded.nodeName():
        raise NotAlike(f"{name} and {bounded.nodeName()}")
    children = seq(streaming.children())
    joins = name == "Join" and all(child.isStreaming() for child in children)
    if name in _STATEFUL or joins:
        yield bounded
    for one, other in zip(children, seq(bounded.children()), strict=True):
        yield from _stateful(one, other)


def _inputs(node: Any) -> Iterator[tuple[Any, list[Any]]]:
    if node.nodeName() == "Join":
        yield node.left(), []
        yield node.right(), []
    else:
        yield node.children().apply(0), seq(getattr(node, _STATEFUL[node.nodeName()])())


def _counted(frame: DataFrame, child: Any, keys: list[Any]) -> Came:
    """How many rows an operator gets, and how often each key but the windows comes."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.classic.column import Column

    session: Any = frame.sparkSession
    jvm = session._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    rows = DataFrame(
        jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, child), session
    )
    columns = [
        Column(expressions.column(key))
        for key in keys
        if not key.dataType().simpleString().startswith("struct<start:timestamp")
    ]
    if not columns:
        number = rows.count()
        return Came(number, Counter({number: 1} if number else {}))
    counted = rows.groupBy(F.xxhash64(*columns).alias("k")).count().groupBy("count").count()
    counts: Counter[int] = Counter(dict(counted.collect()))
    return Came(sum(often * number for often, number in counts.items()), counts)
