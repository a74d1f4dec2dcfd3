"""A physical plan as steps that people think in, from sources to result (private API, 4.3)."""

from __future__ import annotations

from collections.abc import Mapping

from evertable.model.durations import short
from evertable.model.facts import Kept, Step
from evertable.spark.hazards import conjuncts
from evertable.spark.planner import plain, seq
from evertable.spark.trees import Node

_CODE = {
    "MapInPandasExec": "mapInPandas",
    "MapInArrowExec": "mapInArrow",
    "BatchEvalPythonExec": "Python function",
    "ArrowEvalPythonExec": "pandas function",
    "FlatMapGroupsInPandasExec": "applyInPandas",
    "FlatMapGroupsInArrowExec": "applyInArrow",
}
_STATIC_JOINS = (
    "BroadcastHashJoinExec",
    "BroadcastNestedLoopJoinExec",
    "SortMergeJoinExec",
    "ShuffledHashJoinExec",
    "CartesianProductExec",
)
_LONGEST = 60


def steps_of(
    node: Node, kept: Mapping[int, tuple[Kept, ...]], streams: Mapping[int, str]
) -> Step | None:
    """The steps from here down to the sources; operators that say nothing are left out."""
    children = [steps_of(child, kept, streams) for child in node.inputs]
    inputs = tuple(child for child in children if child is not None)
    name = node.kind
    held = kept.get(id(node))
    if held is not None:
        return Step(held[0].kind if held else "join", _stateful(held), held, inputs)
    if not node.inputs:
        found = {streams[a.exprId().id()] for a in seq(node.output()) if a.exprId().id() in streams}
        return Step("stream", found.pop()) if found else _leaf(name)
    match name:
        case "FilterExec":
            condition = _condition(node)
            return Step("filter", condition, (), inputs) if condition else _one(inputs)
        case "EventTimeWatermarkExec":
            text = f"{node.eventTime().name()} - {short(node.delayMs())}"
            return Step("watermark", text, (), inputs)
        case "UnionExec":
            return Step("union", "", (), inputs)
    if name in _STATIC_JOINS:
        return Step("join", "with a static table", (), inputs)
    if name in _CODE:
        return Step("code", _CODE[name], (), inputs)
    return _one(inputs) if len(inputs) < 2 else Step("step", name.removesuffix("Exec"), (), inputs)


def _one(inputs: tuple[Step, ...]) -> Step | None:
    return inputs[0] if inputs else None


def _leaf(name: str) -> Step | None:
    return None if name in ("LocalTableScanExec", "OneRowRelationExec") else Step("static", "")


def _condition(node: Node) -> str:
    """The condition without what Spark adds about NULLs."""
    parts = [
        plain(part.sql())
        for part in conjuncts(node.condition())
        if part.getClass().getSimpleName() != "IsNotNull"
    ]
    parts = [part for part in parts if "precisetimestampconversion" not in part]  # of a window
    text = " AND ".join(parts)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _stateful(held: tuple[Kept, ...]) -> str:
    first = held[0] if held else None
    if first is None:
        return ""
    if first.kind == "join":
        return f"{first.join} on {', '.join(first.keys)}"
    if first.kind == "limit":
        return f"{first.limit:,} rows"
    return ", ".join(k for k in first.keys if k != "spark_grouping_id")
