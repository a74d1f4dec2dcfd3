"""Which branches of CASE (and IF) the rows of a batch query take (private API, 4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evertable.spark.planner import query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_TEXT = 80


@dataclass(frozen=True)
class Branches:
    """One CASE: its text, how many branches it has with ELSE, and those that some row took."""

    text: str
    number: int
    taken: frozenset[int]


def branches_taken(frame: DataFrame) -> Iterator[Branches]:
    """Every CASE in the query, run over the rows that come to it."""
    session: Any = frame.sparkSession
    jvm: Any = session._jvm
    for node, expression in query_of(frame).expressions:
        kind = expression.kind
        if kind not in ("CaseWhen", "If") or node.children().length() != 1:
            continue
        if "precisetimestampconversion" in expression.sql().lower():  # Spark's, of a window
            continue
        conditions = _conditions(expression, kind)
        java_frame = jvm.org.apache.spark.sql.classic.Dataset.ofRows(
            session._jsparkSession, node.children().apply(0)
        )
        taken = _taken(session, java_frame, conditions)
        text = " ".join(expression.sql().split())
        short = text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"
        yield Branches(short, len(conditions) + 1, frozenset(taken))


def _conditions(expression: Any, kind: str) -> list[Any]:
    if kind == "If":
        return [expression.predicate()]
    branches = expression.branches()
    return [branches.apply(n)._1() for n in range(branches.length())]


def _taken(session: Any, java_frame: Any, conditions: list[Any]) -> set[int]:
    """0 for the first WHEN that is true, … and their number for ELSE."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.classic.column import Column

    jvm = session._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    number: Any = None
    for n, condition in enumerate(conditions):
        column = Column(expressions.column(condition))
        number = F.when(column, n) if number is None else number.when(column, n)
    rows = DataFrame(java_frame, session)
    found = rows.select(number.otherwise(len(conditions)).alias("branch")).distinct().collect()
    return {row["branch"] for row in found}
