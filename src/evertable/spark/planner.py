"""What Spark's own analysis and planner say of a query that is not started (private API, 4.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evertable.model.facts import Asked
from evertable.model.pipeline import OutputMode, TriggerKind
from evertable.spark.trees import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_STATEFUL = {
    "Aggregate": "aggregate",
    "Deduplicate": "dedup",
    "DeduplicateWithinWatermark": "dedup within watermark",
    "Distinct": "dedup",
    "GlobalLimit": "limit",
    "FlatMapGroupsWithState": "python state",
    "FlatMapGroupsInPandasWithState": "python state",
    "TransformWithState": "python state",
    "TransformWithStateInPySpark": "python state",
}
_BY_TIME_MODE = ("TransformWithState", "TransformWithStateInPySpark")
_BY_TIMEOUT = ("FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState")

# Kinds of operator that move rows to other tasks, by key.
SHUFFLED = frozenset({"aggregate", "dedup", "dedup within watermark", "python state"})
# Kinds of operator that keep state.
STATEFUL_KINDS = SHUFFLED | {"join", "limit"}


@dataclass(frozen=True)
class Operator:
    """One operator of a query that keeps state or reads a stream, as plain words."""

    kind: str
    columns: tuple[str, ...] = ()
    detail: str = ""


def refusal(
    frame: DataFrame, mode: OutputMode, trigger: TriggerKind = "default"
) -> Exception | None:
    """Spark's reason why this query cannot run in this mode and so triggered; None if it can."""
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    java_mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    try:
        if trigger == "continuous":
            checker.checkForContinuous(analyzed(frame), java_mode)
        else:
            checker.checkForStreaming(analyzed(frame), java_mode)
        if trigger == "real_time":
            checker.checkAdditionalRealTimeModeConstraints(analyzed(frame), java_mode)
    except Exception as e:
        from pyspark.errors.exceptions.captured import convert_exception

        java = getattr(e, "java_exception", None)
        return convert_exception(java) if java is not None else e
    return None


def group_keys(frame: DataFrame) -> list[str] | None:
    """The output columns that a query groups by, or dedups on: what a row is replaced by.

    None where there is no such operator, or where a key does not come out of the query.
    """
    node = analyzed(frame)
    names = {a.exprId().id(): a.name() for a in seq(node.output())}
    while True:
        kind = node.nodeName()
        if kind == "WithCTE":
            node = node.plan()
            continue
        if kind == "Aggregate":
            return _key_columns(node, names)
        if kind == "Distinct":
            columns = [names.get(a.exprId().id()) for a in seq(node.output())]
            return [c for c in columns if c] if all(columns) else None
        if kind in ("Deduplicate", "DeduplicateWithinWatermark"):
            keys = [names.get(k.exprId().id()) for k in seq(node.keys())]
            return [k for k in keys if k] if all(keys) and keys else None
        if kind == "Project":
            for expression in seq(node.projectList()):
                if expression.nodeName() == "Alias" and is_attribute(expression.child()):
                    outer = names.get(expression.exprId().id())
                    if outer:
                        names.setdefault(expression.child().exprId().id(), outer)
        elif kind not in (
            "Filter",
            "SubqueryAlias",
            "View",
            "Sort",
            "EventTimeWatermark",
            "GlobalLimit",
            "LocalLimit",
        ):
            return None
        node = node.children().apply(0)


def filters_groups(frame: DataFrame) -> bool:
    """Whether a filter (HAVING, or one above) decides which groups come out of a query."""
    node = analyzed(frame)
    while True:
        kind = node.nodeName()
        if kind == "Filter":
            return any(n.nodeName() == "Aggregate" for n in nodes(node))
        if kind == "WithCTE":
            node = node.plan()
        elif kind in ("Project", "SubqueryAlias", "View", "Sort"):
            node = node.children().apply(0)
        else:
            return False


def waits_for_the_clock(frame: DataFrame) -> bool:
    """Whether a query has timers that go by the clock: then it is never done with what there is."""
    return any(
        (node.nodeName() in _BY_TIME_MODE and "ProcessingTime" in node.timeMode().toString())
        or (node.nodeName() in _BY_TIMEOUT and "ProcessingTime" in node.timeout().toString())
        for node in nodes(analyzed(frame))
    )


def sources_can_be_named(frame: DataFrame) -> bool:
    """Whether every source of a query has a name, and no two of them the same.

    Spark itself looks only when the query starts.
    """
    names = [
        node.sourceIdentifyingName().toString()
        for node in nodes(analyzed(frame))
        if node.nodeName().startswith("StreamingRelation")
    ]
    return len(set(names)) == len(names) and not any("Unassigned" in n for n in names)


def joins_without_equality(frame: DataFrame) -> bool:
    """Whether two streams are joined with nothing equal, which Spark says after the start only."""
    jvm: Any = frame.sparkSession._jvm
    keys = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys

    def without(plan: Any) -> bool:
        return any(
            node.nodeName() == "Join"
            and all(child.isStreaming() for child in seq(node.children()))
            and not keys.unapply(node).isDefined()
            for node in nodes(plan)
        )

    plan = analyzed(frame)
    if not without(plan):
        return False
    # What is equal may stand in a WHERE above the join; the optimizer moves it there.
    return without(frame.sparkSession._jsparkSession.sessionState().optimizer().execute(plan))


# What a query may ask besides its input, as SQL calls it.
_CLOCK = {
    "CurrentTimestamp": "current_timestamp",
    "CurrentTimestampLike": "current_timestamp",
    "CurrentBatchTimestamp": "current_timestamp",
    "CurrentDate": "current_date",
    "CurrentTime": "current_time",
    "LocalTimestamp": "localtimestamp",
    "Now": "now",
}
_CHANCE = {
    "Rand": "rand",
    "Randn": "randn",
    "RandStr": "randstr",
    "Shuffle": "shuffle",
    "Uuid": "uuid",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "SparkPartitionID": "spark_partition_id",
    "InputFileName": "input_file_name",
}


def asked(query: Query) -> Asked:
    """Which functions of a query look at clock, chance, or code that we cannot see into."""
    clock, chance, python = set(), set(), set()
    for _, expression in query.expressions:
        if expression.kind in _CLOCK:
            clock.add(_CLOCK[expression.kind])
        elif expression.kind in _CHANCE:
            chance.add(_CHANCE[expression.kind])
        elif expression.kind in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
            python.add(str(expression.name()))
    return Asked(tuple(sorted(clock)), tuple(sorted(chance)), tuple(sorted(python)))


def query_of(frame: DataFrame) -> Query:
    """The analyzed plan of a query, fetched once."""
    return Query(analyzed(frame))


def fingerprint(frame: DataFrame) -> str:
    """A query and the confs that it is planned by, without the numbers of this one building of it;
    empty where code of the user's is in it, which this does not tell apart."""
    text = str(analyzed(frame).toString())
    if re.search(r"Python|Pandas|Arrow", text):
        return ""
    conf: Any = frame.sparkSession.conf
    confs = [str(conf.get(name)) for name in _PLANNED_BY]
    text = re.sub(r"#\d+L?|[0-9a-f]{8}-[0-9a-f-]{27}|@[0-9a-f]+", "", text)
    return "\n".join([*confs, text])


_PLANNED_BY = (
    "spark.sql.shuffle.partitions", "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.streaming.stateStore.providerClass", "spark.sql.ansi.enabled",
    "spark.sql.session.timeZone",
)  # fmt: skip


def windows_for_ever(frame: DataFrame) -> bool:
    """Whether a query groups by windows of time and nothing says when one is over."""
    return any(
        node.nodeName() == "Aggregate"
        and any(
            key.dataType().simpleString().startswith("struct<start:timestamp")
            for key in seq(node.groupingExpressions())
        )
        and not any(below.nodeName() == "EventTimeWatermark" for below in nodes(node))
        for node in nodes(analyzed(frame))
    )


def explained(query: StreamingQuery, *, extended: bool) -> str:
    """The plan of a running query's newest batch."""
    return str(query._jsq.explainInternal(extended))


def operators(frame: DataFrame) -> list[Operator]:
    """The streams a query reads and the state it keeps, from the top of its plan down."""
    return list(_operators(analyzed(frame)))


def _operators(node: Any) -> list[Operator]:
    kind = node.nodeName()
    found: list[Operator] = []
    if kind == "Aggregate":
        keys = tuple(sorted(_name(k) for k in seq(node.groupingExpressions())))
        functions = sorted(
            {f.prettyName() for e in seq(node.aggregateExpressions()) for f in _functions(e)}
        )
        found.append(Operator("aggregate", keys, ",".join(functions)))
    elif kind == "Join" and node.children().apply(0).isStreaming() and node.right().isStreaming():
        found.append(Operator("join", (), node.joinType().toString()))
    elif kind == "EventTimeWatermark":
        found.append(Operator("watermark", (node.eventTime().name(),), node.delay().toString()))
    elif kind.startswith("StreamingRelation"):
        found.append(Operator("stream", tuple(a.name() for a in seq(node.output()))))
    elif kind in _STATEFUL and node.isStreaming():
        keys = tuple(sorted(_name(k) for k in seq(node.keys()))) if "Dedup" in kind else ()
        found.append(Operator(_STATEFUL[kind], keys))
    for child in seq(node.children()):
        found += _operators(child)
    return found


def nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in seq(node.children()):
        yield from nodes(child)


def _functions(expression: Any) -> list[Any]:
    if expression.nodeName() == "AggregateExpression":
        return [expression.aggregateFunction()]
    return [f for child in seq(expression.children()) for f in _functions(child)]


def _key_columns(aggregate: Any, names: dict[int, str]) -> list[str] | None:
    outputs = seq(aggregate.aggregateExpressions())
    keys: list[str] = []
    for key in seq(aggregate.groupingExpressions()):
        for output in outputs:
            inner = output.child() if output.nodeName() == "Alias" else output
            column = names.get(output.exprId().id())
            if column and inner.semanticEquals(key):
                keys.append(column)
                break
        else:
            return None
    return keys


def _name(expression: Any) -> str:
    return str(expression.name() if is_attribute(expression) else expression.sql())


def is_attribute(expression: Any) -> bool:
    return bool(expression.nodeName() == "AttributeReference")


def plain(sql: str) -> str:
    """Spark's text of an expression without the quotes that nobody wrote.

    >>> plain("(CAST(`a`.`n` AS INT) > 3)")
    'CAST(a.n AS INT) > 3'
    """
    text = re.sub(r"`(\w+)`", r"\1", sql)
    text = re.sub(r"\b(\d+)L\b", r"\1", text)
    if text.startswith("(") and text.endswith(")") and _one_pair(text):
        text = text[1:-1]
    return " ".join(text.split())


def _one_pair(text: str) -> bool:
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if not depth and place < len(text) - 1:
            return False
    return True


def analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def seq(scala: Any) -> list[Any]:
    return [scala.apply(i) for i in range(scala.length())]
