"""Spark's physical stateful operators as facts: what each keeps, and until when (private API, 4.3).

The plan was made with a watermark that is a known number, so that the predicates which evict
state have literals in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from evertable.location import Location
from evertable.model.facts import Bound, Kept, Kind, Mark, Timers
from evertable.model.pipeline import OutputMode
from evertable.spark import planner
from evertable.spark.execution import WATERMARK
from evertable.spark.planner import nodes, plain, seq
from evertable.spark.trees import Node, Query
from evertable.spark.user_state import code_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELAY = "spark.watermarkDelayMs"
_JOINS = {
    "Inner": "inner", "LeftOuter": "left outer", "RightOuter": "right outer",
    "FullOuter": "full outer", "LeftSemi": "left semi",
}  # fmt: skip
KINDS: dict[str, Kind] = {
    "StateStoreSaveExec": "aggregate",
    "SessionWindowStateStoreSaveExec": "session",
    "StreamingDeduplicateExec": "dedup",
    "StreamingDeduplicateWithinWatermarkExec": "dedup within watermark",
    "StreamingSymmetricHashJoinExec": "join",
    "StreamingGlobalLimitExec": "limit",
    "FlatMapGroupsInPandasWithStateExec": "python",
    "FlatMapGroupsWithStateExec": "python",
    "TransformWithStateInPySparkExec": "python",
    "TransformWithStateExec": "python",
}


class Reading:
    """One physical plan, read operator by operator."""

    def __init__(
        self,
        session: SparkSession,
        root: Node,
        names: Mapping[int, str],
        mode: OutputMode,
        texts: Mapping[str, Location],
    ) -> None:
        self.names = names
        conf: Any = session.conf
        self.policy: Literal["min", "max"] = (
            "max" if conf.get("spark.sql.streaming.multipleWatermarkPolicy") == "max" else "min"
        )
        self.partitions = int(conf.get("spark.sql.shuffle.partitions") or 0)
        self._rocksdb = "RocksDB" in conf.get("spark.sql.streaming.stateStore.providerClass")
        self._nodes = list(root.walk())
        self._mode = mode
        self._texts = texts
        # How far behind the newest time the watermark of the query is, if streams keep step.
        delays = [node.delayMs() for node in self._nodes if is_mark(node)]
        self.delay: int = (max if self.policy == "min" else min)(delays, default=0)

    def kept(self) -> list[tuple[int, tuple[Kept, ...]]]:
        """(id of the node, what it keeps), of each stateful operator, from the sink down."""
        return [
            (id(node), tuple(self._of(node, kind)))
            for node in self._nodes
            if (kind := KINDS.get(node.kind)) is not None
        ]

    def marks(self) -> list[Mark]:
        found = [
            Mark(
                node.eventTime().name(),
                node.delayMs(),
                self._streams(node),
                tuple(sorted(_kinds_below(node))),
            )
            for node in self._nodes
            if is_mark(node)
        ]
        return list(dict.fromkeys(found))

    def _of(self, node: Node, kind: Kind) -> Iterator[Kept]:
        marked = tuple(sorted({n.eventTime().name() for n in node.walk() if is_mark(n)}))
        after = tuple(k for child in node.inputs for k in _kinds_below(child))
        place = self._place(node)
        for kept in self._held(node, kind):
            of = kept.of or self._streams(node)
            yield replace(
                kept, marked=marked, after=after, place=place, of=of, row_bytes=_row_bytes(node)
            )

    def _held(self, node: Node, kind: Kind) -> Iterator[Kept]:
        match kind:
            case "join":
                yield from self._join(node)
            case "limit":
                yield Kept("limit", "constant", limit=node.streamLimit())
            case "python":
                yield _python(node)
            case _:
                yield self._by_key(node, kind)

    def _by_key(self, node: Node, kind: Kind) -> Kept:
        method = "keyWithoutSessionExpressions" if kind == "session" else "keyExpressions"
        keys = seq(getattr(node, method)())
        made = [None if _is_window(key) else _definition(key, node) for key in keys]
        names = tuple(_key_name(key.name(), one) for key, one in zip(keys, made, strict=True))
        derived = tuple(n for n, e in zip(names, made, strict=True) if e and _of_time(e))
        try:
            evicts = node.watermarkExpressionForEviction()
        except Exception as e:  # what Spark would say in the first batch
            java: Any = getattr(e, "java_exception", None)
            return Kept(kind, "growing", names, failure=str(java.getMessage() if java else e))
        behind = _behind(node)
        collides = self._rocksdb and kind.startswith("dedup") and _shares_a_task(node)
        if kind == "dedup within watermark":
            # A key expires at its first time + the delay; the watermark is one more delay behind.
            own, column = next(
                ((n.delayMs(), n.eventTime().name()) for n in node.walk() if is_mark(n)), (0, "")
            )
            lasts = own + self.delay + behind
            return Kept(kind, "bounded", names, column, lasts, behind, collides=collides)
        window = slide = 0
        if kind == "session":
            window = _gap(node)
        elif any(_is_window(key) for key in keys):
            window, slide = _window(node)
            kind = "window" if kind == "aggregate" else kind
        if not keys and kind == "aggregate":
            return Kept(kind, "constant")
        timed = keys if kind != "session" else [node.sessionExpression()]
        column = next((key.name() for key in timed if key.metadata().contains(_DELAY)), "")
        # Spark evicts by its keys: an event time that is none of them does not help.
        if not (evicts.isDefined() and column) or self._mode == "complete":
            return Kept(
                kind, "growing", names, window=window, slide=slide, derived=derived,
                collides=collides,
            )  # fmt: skip
        lasts = self.delay + behind
        return Kept(kind, "bounded", names, column, lasts, behind, window, slide, collides=collides)

    def _join(self, node: Node) -> Iterator[Kept]:
        predicates = node.stateWatermarkPredicates()
        join = _JOINS.get(node.joinType().toString(), node.joinType().toString())
        sides: tuple[tuple[Literal["left", "right"], Any, Node, Any], ...] = (
            ("left", predicates.left(), node.inputs[0], node.leftKeys()),
            ("right", predicates.right(), node.inputs[1], node.rightKeys()),
        )
        for side, predicate, child, keys in sides:
            bound: Bound = "bounded" if predicate.isDefined() else "growing"
            column, lasts, window, slide = "", 0, 0, 0
            if predicate.isDefined():
                told = re.search(r"<= (-?\d+)", predicate.get().toString())
                ranged = WATERMARK - int(told[1]) // 1000 if told else 0
                lasts = max(0, ranged // 1000 * 1000 + self.delay)
                column = next((n.eventTime().name() for n in child.walk() if is_mark(n)), "")
                if ".end" in predicate.get().toString():  # joined by a window, kept to its end
                    window, slide = _window(child)
            columns = tuple(_text(key) for key in seq(keys))
            of = self._streams(child)
            yield Kept("join", bound, columns, column, lasts, 0, window, slide, of, join, side)

    def _streams(self, node: Node) -> str:
        """The streams that come into an operator."""
        found = {
            self.names[attribute.exprId().id()]
            for below in node.walk()
            if below.kind.startswith("StreamingRelation")
            for attribute in seq(below.output())[:1]
        }
        return ", ".join(sorted(found))

    def _place(self, node: Node) -> Location | None:
        """The line of the clause that an operator is made from."""
        link = node.logicalLink()
        return located(link.get(), self._texts) if link.isDefined() else None


def _python(node: Node) -> Kept:
    by_mode = node.kind.startswith("Transform")
    told = (node.timeMode() if by_mode else node.timeoutConf()).toString()
    timers: Timers = (
        "event time"
        if "EventTime" in told
        else "processing time"
        if "Processing" in told
        else "none"
    )
    keys = tuple(a.name() for a in seq(node.groupingAttributes()))
    return Kept("python", "yours", keys, timers=timers, code=code_of(node))


def _row_bytes(node: Node) -> int:
    """About how large one row of state is: key and value as Spark lays them out."""
    children = node.inputs
    columns = [a for child in children for a in seq(child.output())]
    one_side = sum(8 + (a.dataType().defaultSize() if _varies(a) else 0) for a in columns)
    return int(one_side / max(1, len(children))) + 2 * 8 + 16


def _varies(attribute: Any) -> bool:
    return attribute.dataType().typeName() in ("string", "binary", "array", "map", "struct")


def _shares_a_task(node: Node) -> bool:
    """Whether an aggregation comes before an operator with no shuffle between."""
    below = node.inputs
    while len(below) == 1 and "Exchange" not in below[0].kind:
        if below[0].kind.endswith("RestoreExec"):
            return True
        below = below[0].inputs
    return False


def located(node: Node, texts: Mapping[str, Location]) -> Location | None:
    """Where an operator or an expression stands in the user's SQL."""
    origin = node.origin()
    if not (origin.sqlText().isDefined() and origin.line().isDefined()):
        return None
    begins = texts.get(origin.sqlText().get())
    return begins.down(origin.line().get() - 1) if begins else None


def stream_names(query: Query) -> dict[int, str]:
    """The name of the stream that a column of a source is from, by the column's id."""
    found = {}
    for node in query.root.walk():
        if node.kind.startswith("StreamingRelation"):
            name = str(node.sourceIdentifyingName().toString())
            told = re.search(r'"([^"]+)"|name=(\w+)|\((\w+)\)', name)
            for attribute in seq(node.output()):
                found[attribute.exprId().id()] = next(filter(None, told.groups())) if told else name
    return found


def is_mark(node: Node) -> bool:
    return node.kind == "EventTimeWatermarkExec"


def _kinds_below(node: Node) -> list[Kind]:
    """The stateful operators of a plan, from its top down."""
    return list(dict.fromkeys(KINDS[n.kind] for n in node.walk() if n.kind in KINDS))


def _behind(node: Node) -> int:
    """How far Spark holds the watermark of a chained operator behind that of the query."""
    own = node.eventTimeWatermarkForEviction()
    return max(0, (WATERMARK - own.get()) // 1000 * 1000) if own.isDefined() else 0


def _is_window(attribute: Any) -> bool:
    return bool(attribute.dataType().simpleString().startswith("struct<start:timestamp"))


def _key_name(name: str, made: Any | None) -> str:
    """The name of a key; of one without a name, the expression."""
    return plain(made.sql()) if made is not None and name.startswith("_grouping") else name


def _definition(key: Any, node: Node) -> Any | None:
    """What a key is computed by; None where it is a column as it came."""
    for below in node.walk():
        method = _EXPRESSIONS.get(below.kind)
        for expression in seq(getattr(below, method)()) if method else ():
            same = expression.exprId().id() == key.exprId().id()
            if same and expression.nodeName() == "Alias":
                found = expression.child()
                return None if planner.is_attribute(found) else found
    return None


def _of_time(expression: Any) -> bool:
    """Whether an expression has an event time with a watermark in it."""
    return any(
        planner.is_attribute(part) and part.metadata().contains(_DELAY)
        for part in nodes(expression)
    )


_EXPRESSIONS = {
    "ProjectExec": "projectList",
    "HashAggregateExec": "resultExpressions",
    "ObjectHashAggregateExec": "resultExpressions",
    "SortAggregateExec": "resultExpressions",
}


def _window(node: Node) -> tuple[int, int]:
    """The length and the slide of a window, from Spark's arithmetic with microseconds for it."""
    for below in node.walk():
        if below.kind == "ExpandExec":
            found = [e for p in seq(below.projections()) for e in seq(p)]
        elif below.kind in _EXPRESSIONS:
            found = seq(getattr(below, _EXPRESSIONS[below.kind])())
        else:
            continue
        text = " ".join(e.sql() for e in found)
        if "precisetimestampconversion" in text.lower():
            length = max((int(n) for n in re.findall(r"(\d+)L\b", text)), default=0)
            slides = [int(n) for n in re.findall(r"% (\d+)L\b", text)]
            return length // 1000, min(slides, default=length) // 1000
    return 0, 0


def _gap(node: Node) -> int:
    """The gap of sessions where it is a constant."""
    for below in node.walk():
        if below.kind != "ProjectExec":
            continue
        for expression in seq(below.projectList()):
            if not _is_window(expression):
                continue
            gaps = {
                _interval(part.value())
                for part in nodes(expression)
                if part.getClass().getSimpleName() == "Literal"
                and "interval" in part.dataType().typeName()
            }
            return gaps.pop() if len(gaps) == 1 else 0
    return 0


def _interval(value: Any) -> int:
    """Milliseconds of an interval of days and time, or of microseconds."""
    if isinstance(value, int):
        return value // 1000
    days: int = value.extractAsPeriod().getDays()
    return days * 86_400_000 + int(value.extractAsDuration().toMillis())


def _text(expression: Any) -> str:
    return str(expression.name() if planner.is_attribute(expression) else expression.sql())
