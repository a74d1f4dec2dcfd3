"""The names that SQL text asks for, found by Spark's own parser, and the text with them replaced.

Each use of a stream becomes a source of its own, so `FROM bids a JOIN bids b` has to read two
things. The parser says where each name stands; only those characters of the text change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evertable.errors import Finding, Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Reference:
    """One name in a FROM: where it stands in the text, and whether it has an alias."""

    name: str
    start: int
    stop: int
    aliased: bool


def references(session: SparkSession, sql: str) -> list[Reference]:
    """Every one-part name that the text reads from, in the order of the text."""
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    if _changes_something(session, plan):
        raise Refused(
            Finding(
                "SQL_INVALID",
                "a query reads; this one would change something",
                detail="Spark runs a command at once, also when it is only looked at",
                hint="SELECT …",
            )
        )
    return sorted(_walk(plan, frozenset(), aliased=False), key=lambda r: r.start)


def _changes_something(session: SparkSession, plan: Any) -> bool:
    from py4j.java_gateway import is_instance_of

    gateway = session.sparkContext._gateway
    logical = "org.apache.spark.sql.catalyst.plans.logical"
    return plan.nodeName().startswith("InsertInto") or any(
        is_instance_of(gateway, node, f"{logical}.{kind}")
        for node in (plan, *_seq(plan.children()))
        for kind in ("Command", "ParsedStatement")
    )


def replace(sql: str, found: list[Reference], new_name: Callable[[str], str | None]) -> str:
    """The text with each reference renamed; None leaves a name as it is."""
    renamed = [(r, new) for r in found if (new := new_name(r.name)) and new != r.name]
    for reference, new in reversed(renamed):
        alias = "" if reference.aliased else f" AS {reference.name}"
        sql = f"{sql[: reference.start]}{new}{alias}{sql[reference.stop + 1 :]}"
    return sql


def _walk(node: Any, hidden: frozenset[str], *, aliased: bool) -> Iterator[Reference]:
    kind = node.nodeName()
    if kind == "UnresolvedRelation":
        parts = _seq(node.multipartIdentifier())
        # a name that a WITH clause defines is the query's own
        if len(parts) == 1 and parts[0].lower() not in hidden:
            yield Reference(parts[0], *_span(node), aliased)
        return
    if kind == "UnresolvedWith":
        for pair in _seq(node.cteRelations()):
            yield from _walk(pair._2(), hidden, aliased=True)
            hidden = hidden | {pair._1().lower()}
        yield from _walk(node.child(), hidden, aliased=False)
        return
    if kind == "NamedStreamingRelation":  # FROM STREAM bids
        inner = next(_walk(node.child(), hidden, aliased=aliased), None)
        if inner is not None:
            yield Reference(inner.name, *_span(node), aliased)
        return
    for child in _seq(node.innerChildren()):  # subqueries in expressions
        yield from _walk(child, hidden, aliased=False)
    for child in _seq(node.children()):
        yield from _walk(child, hidden, aliased=kind == "SubqueryAlias")


def _span(node: Any) -> tuple[int, int]:
    origin = node.origin()
    return origin.startIndex().get(), origin.stopIndex().get()


def _seq(scala: Any) -> list[Any]:
    return [scala.apply(i) for i in range(scala.length())]
