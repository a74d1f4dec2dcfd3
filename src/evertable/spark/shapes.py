"""What a query computes, read from Spark's optimized plan (private API, 4.3).

The optimizer has done most of it: views are gone, projections are merged, conditions stand where
they belong. What is left is to tell every column by the columns of the sources (`terms`), and to
cut the plan where state is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evertable.model.shape import Branch, Operator, OperatorKind, Shape, Term
from evertable.spark.code_prints import CodePrints
from evertable.spark.conditions import either, together, without_implied
from evertable.spark.leaves import read_from
from evertable.spark.logical import LogicalPlan, described
from evertable.spark.planner import seq
from evertable.spark.state_operators import KINDS
from evertable.spark.terms import Env, Parsed, Terms, parsed, short_text
from evertable.spark.trees import Node

_KIND_OF: Mapping[str, OperatorKind] = {
    "aggregate": "aggregate", "window": "aggregate", "session": "session", "dedup": "dedup",
    "dedup within watermark": "dedup within watermark", "join": "join", "limit": "limit",
    "python": "python",
}  # fmt: skip
# Nodes that change neither the rows nor what they are made of.
_NOTHING = {
    "SubqueryAlias", "View", "ResolvedHint", "Repartition", "RepartitionByExpression",
    "RebalancePartitions", "CollectMetrics", "LocalLimit", "UpdateEventTimeWatermarkColumn",
    "WriteToMicroBatchDataSource", "WriteToMicroBatchDataSourceV1",
}  # fmt: skip
_PYTHON_STATE = {
    "FlatMapGroupsInPandasWithState", "TransformWithStateInPySpark", "TransformWithStateInPandas",
}  # fmt: skip


def shape_of(
    execution: Any, physical: Node, names: Mapping[int, str], *, clock: bool = False
) -> Shape:
    """The shape of a planned query; `names` are of streams, by the ids of their columns. `clock`:
    it asks for the time."""
    plan = execution.optimizedPlan()
    flat = iter(json.loads(plan.toJSON()))
    ids = [
        int(node.stateInfo().get().operatorId()) for node in physical.walk() if node.kind in KINDS
    ]
    kinds = [_KIND_OF[KINDS[node.kind]] for node in physical.walk() if node.kind in KINDS]
    reader = _Reader(names, list(zip(ids, kinds, strict=True)), clock)
    ways = reader.ways(LogicalPlan.of(flat, lambda: plan))
    columns = [(a.exprId().id(), str(a.name())) for a in seq(plan.output())]
    result = tuple(
        way.branch(values=[replace(way.term(id), name=name) for id, name in columns])
        for way in ways
    )
    operators = tuple(sorted(reader.operators, key=lambda o: o.id))
    return Shape(operators, result, tuple(reader.leaves))


@dataclass(frozen=True)
class _Way:
    """Rows on their way up: where they are from, and what each column is made of."""

    env: Env
    reads: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    shape: str = ""
    marks: tuple[tuple[str, int], ...] = ()

    def term(self, id: int) -> Term:
        text, kind = self.env.get(id, ("?", ""))
        return Term(short_text(text), kind)

    def branch(self, keys: Sequence[Term] = (), values: Sequence[Term] = ()) -> Branch:
        return Branch(
            self.reads,
            tuple(sorted(map(short_text, self.filters))),
            short_text(self.shape),
            tuple(keys),
            tuple(values),
            tuple(sorted(set(self.marks))),
        )


class _Reader:
    """One pass over a plan, from its top down; operators are numbered in that order."""

    def __init__(
        self, names: Mapping[int, str], ids: list[tuple[int, OperatorKind]], clock: bool
    ) -> None:
        self._names = names
        self._ids = ids
        self._met = 0
        self.leaves: list[tuple[str, str]] = []
        self.operators: list[Operator] = []
        self._terms = Terms(CodePrints(), clock=clock)

    def ways(self, plan: LogicalPlan) -> list[_Way]:
        """Every way on which rows come out of an operator."""
        if plan.kind in _NOTHING:
            return self.ways(plan.inputs[0])
        if not plan.inputs:
            return [self._leaf(plan)]
        method = getattr(self, f"_of_{plan.kind.lower()}", None)
        found: list[_Way] = method(plan) if method else self._of_stranger(plan)
        return found

    # -- where rows are from -----------------------------------------------------------------

    def _leaf(self, plan: LogicalPlan) -> _Way:
        outputs = plan.outputs()
        if plan.kind.startswith(("StreamingRelation", "StreamingExecutionRelation")):
            name = next((self._names[id] for id, _, _ in outputs if id in self._names), "")
            if not name or "nassigned" in name:  # unnamed: known by its place
                name = str(len(self.leaves))
            self.leaves.append((name, described(plan.java()) if name.isdigit() else ""))
            env = {id: (f"{name}.{column}:{kind}", kind) for id, column, kind in outputs}
            return _Way(env, (name,), shape=f"<{name}>")
        rows = plan.kind == "LocalRelation"
        text = f"rows({_digest_of_rows(plan)})" if rows else f"static@{read_from(plan.java())}"
        env = {id: (f"{text}.{column}", kind) for id, column, kind in outputs}
        return _Way(env, shape=text)

    # -- operators without state ---------------------------------------------------------------

    def _of_project(self, plan: LogicalPlan) -> list[_Way]:
        return [self._projected(way, plan.expressions("projectList")) for way in self._below(plan)]

    def _projected(self, way: _Way, expressions: Sequence[Parsed]) -> _Way:
        made = {}
        for one in expressions:
            if one.kind == "Alias":
                made[one.id] = self._terms.typed(one, way.env)
        return replace(way, env={**way.env, **made})

    def _of_filter(self, plan: LogicalPlan) -> list[_Way]:
        condition = plan.expression("condition")
        assert condition is not None
        return [
            replace(way, filters=together(way.filters, self._terms.conditions(condition, way.env)))
            for way in self._below(plan)
        ]

    def _of_eventtimewatermark(self, plan: LogicalPlan) -> list[_Way]:
        node = plan.java()
        delay = node.delay()
        millis = delay.months * 31 * 86_400_000 if isinstance(delay.months, int) else 0
        millis += int(delay.extractAsDuration().toMillis())
        millis += int(delay.extractAsPeriod().getDays()) * 86_400_000
        id = node.eventTime().exprId().id()
        return [
            replace(way, marks=(*way.marks, (way.term(id).text, millis)))
            for way in self._below(plan)
        ]

    def _of_union(self, plan: LogicalPlan) -> list[_Way]:
        outputs = plan.outputs()
        found = []
        for child in plan.inputs:
            theirs = [id for id, _, _ in child.outputs()]
            for way in self.ways(child):
                env = {
                    ours[0]: way.env.get(their, ("?", ""))
                    for ours, their in zip(outputs, theirs, strict=True)
                }
                found.append(replace(way, env={**way.env, **env}))
        return found

    def _of_expand(self, plan: LogicalPlan) -> list[_Way]:
        found = []
        lists = [
            [parsed(e, lambda r=r, i=i: plan.java().projections().apply(r).apply(i))  # type: ignore[misc]
             for i, e in enumerate(row)]
            for r, row in enumerate(plan.fields["projections"])
        ]  # fmt: skip
        for way in self._below(plan):
            env = dict(way.env)
            varied = []
            for i, (id, _, kind) in enumerate(plan.outputs()):
                texts = [self._terms.typed(row[i], way.env)[0] for row in lists]
                several = len(set(texts)) > 1 or len(lists) == 1
                env[id] = (self._terms.expanded(texts) if several else texts[0], kind)
                varied += [env[id][0]] if several else []
            # Of windows the key says it all.
            windows = all(text.startswith("window(") for text in varied)
            shape = way.shape if windows else f"expand({len(lists)},{way.shape})"
            found.append(replace(way, env=env, shape=shape))
        return found

    def _of_generate(self, plan: LogicalPlan) -> list[_Way]:
        generator = plan.expression("generator")
        assert generator is not None
        outer = "outer " if plan.fields.get("outer") else ""
        found = []
        for way in self._below(plan):
            text = self._terms.typed(generator, way.env)[0]
            env = dict(way.env)
            for i, one in enumerate(plan.expressions("generatorOutput")):
                env[one.id] = (f"{text}[{i}]", one.type or "")
            found.append(replace(way, env=env, shape=f"{outer}generate({text},{way.shape})"))
        return found

    def _of_batchevalpython(self, plan: LogicalPlan) -> list[_Way]:
        pairs = list(zip(plan.expressions("udfs"), plan.expressions("resultAttrs"), strict=True))
        return [
            replace(
                way,
                env={**way.env, **{a.id: self._terms.typed(udf, way.env) for udf, a in pairs}},
            )
            for way in self._below(plan)
        ]

    _of_arrowevalpython = _of_batchevalpython

    def _of_sort(self, plan: LogicalPlan) -> list[_Way]:
        return [
            replace(way, shape=f"sort({self._all(plan, way)},{way.shape})")
            for way in self._below(plan)
        ]

    def _of_stranger(self, plan: LogicalPlan) -> list[_Way]:
        """An operator that is known by its name and its expressions only."""
        children = [self._below_of(child) for child in plan.inputs]
        ways = [way for child in children for way in child]
        text = ";".join(
            f"{self._all(plan, way)}|{way.shape}|{'&'.join(sorted(way.filters))}" for way in ways
        )
        shape = f"{plan.kind}({text})"
        outside: Env = {}
        for way in ways:
            outside |= way.env
        env = {
            id: outside.get(id, (f"{short_text(shape)}.{name}", kind))
            for id, name, kind in plan.outputs()
        }
        reads = tuple(read for way in ways for read in way.reads)
        marks = tuple(mark for way in ways for mark in way.marks)
        return [_Way(env, reads, (), shape, marks)]

    def _all(self, plan: LogicalPlan, way: _Way) -> str:
        """Every expression of an operator."""
        found = []
        for name, value in sorted(plan.fields.items()):
            if name in ("class", "num-children", "output", "nodeId") or not value:
                continue
            if isinstance(value, list) and isinstance(value[0], dict) and "class" in value[0]:
                one = plan.expression(name)
                found.append(f"{name}={self._terms.typed(one, way.env)[0]}" if one else "")
            elif isinstance(value, list) and isinstance(value[0], list):
                texts = [self._terms.typed(e, way.env)[0] for e in plan.expressions(name)]
                found.append(f"{name}={','.join(texts)}")
            elif isinstance(value, str | int | float):
                found.append(f"{name}={value}")
        return ";".join(found)

    # -- operators that keep state ---------------------------------------------------------------

    def _begin(self, kind: OperatorKind) -> int:
        """The number of the next operator that keeps state, counted from the top."""
        number, known = self._ids[self._met] if self._met < len(self._ids) else (-1, kind)
        if known != kind and {known, kind} != {"aggregate", "session"}:
            raise LookupError(f"Spark plans {known} where the query has {kind}")
        self._met += 1
        return number

    def _of_aggregate(self, plan: LogicalPlan) -> list[_Way]:
        number = self._peek()
        before = self._met
        self._met += 1
        ways = self.ways(plan.inputs[0])
        groups = plan.expressions("groupingExpressions")
        results = plan.expressions("aggregateExpressions")
        if not any(way.reads for way in ways):  # of a static table
            self._met = before
            return self._of_stranger(plan)
        branches: list[Branch] = []
        env: Env = {}
        for way in ways:
            keys = [self._term(one, way.env) for one in groups]
            calls = self._terms.aggregates(results, way.env)
            branches.append(way.branch(keys, [Term(short_text(text), "") for text in calls]))
            for one in (*results, *groups):
                made = self._terms.typed(one, way.env)
                known = env.get(one.id)
                env[one.id] = made if known is None else (either(known[0], made[0]), made[1])
        kind: OperatorKind = "session" if number[1] == "session" else "aggregate"
        self.operators.append(Operator(number[0], kind, (tuple(branches),)))
        marks = tuple(mark for way in ways for mark in way.marks)
        return [_Way(env, (f"#{number[0]}",), (), f"<#{number[0]}>", marks)]

    def _peek(self) -> tuple[int, OperatorKind]:
        return self._ids[self._met] if self._met < len(self._ids) else (-1, "aggregate")

    def _of_deduplicate(self, plan: LogicalPlan) -> list[_Way]:
        return self._deduplicated(plan, "dedup")

    def _of_deduplicatewithinwatermark(self, plan: LogicalPlan) -> list[_Way]:
        return self._deduplicated(plan, "dedup within watermark")

    def _deduplicated(self, plan: LogicalPlan, kind: OperatorKind) -> list[_Way]:
        number = self._begin(kind)
        ways = self.ways(plan.inputs[0])
        keys = plan.expressions("keys")
        branches = [way.branch([self._term(k, way.env) for k in keys]) for way in ways]
        self.operators.append(Operator(number, kind, (tuple(branches),)))
        return [self._through(ways, number)]

    def _of_globallimit(self, plan: LogicalPlan) -> list[_Way]:
        child = plan.inputs[0]
        limit = plan.expression("limitExpr")
        assert limit is not None
        if not self._is_streaming(plan) or self._peek()[1] != "limit":  # nor in complete mode
            return self._of_stranger(plan)
        number = self._begin("limit")
        ways = self.ways(child)
        text = self._terms.typed(limit, {})[0]
        branches = tuple(way.branch() for way in ways)
        self.operators.append(Operator(number, "limit", (branches,), {"limit": text}))
        return [self._through(ways, number)]

    def _is_streaming(self, plan: LogicalPlan) -> bool:
        return bool(plan.java().isStreaming())

    def _through(self, ways: Sequence[_Way], number: int) -> _Way:
        """Rows that an operator lets pass as they are."""
        env: Env = {}
        for way in ways:
            for id, (text, kind) in way.env.items():
                known = env.get(id)
                env[id] = (text, kind) if known is None else (either(known[0], text), kind)
        marks = tuple(mark for way in ways for mark in way.marks)
        return _Way(env, (f"#{number}",), (), f"<#{number}>", marks)

    def _of_join(self, plan: LogicalPlan) -> list[_Way]:
        left, right = plan.inputs
        both = all(self._is_streaming(side) for side in plan.inputs)
        number = self._begin("join") if both else -1
        lefts, rights = self.ways(left), self.ways(right)
        join = (
            str(plan.fields["joinType"]["object"]).rpartition(".")[2].rstrip("$")
            if isinstance(plan.fields["joinType"], dict) and "object" in plan.fields["joinType"]
            else str(plan.java().joinType().toString())
        )
        condition = plan.expression("condition")
        if not both:
            return self._with_static(join, condition, lefts, rights)
        env = {**_merged(lefts), **_merged(rights)}
        equal, others = self._terms.equalities(condition, _merged(lefts), _merged(rights))
        implied = join in ("Inner", "LeftSemi")
        texts = [text for one in others for text in self._terms.conditions(one, env)]
        sides = []
        for ways, keys, outputs in (
            (lefts, [one for one, _ in equal], left.outputs()),
            (rights, [other for _, other in equal], right.outputs()),
        ):
            branches = []
            for way in ways:
                equals = [self._terms.typed(k, way.env)[0] for k in keys]
                if implied or ways is (rights if join == "LeftOuter" else lefts):
                    way = replace(way, filters=without_implied(way.filters, [*equals, *texts]))
                branches.append(
                    way.branch(
                        [self._term(k, way.env) for k in keys],
                        [replace(way.term(id), name=name) for id, name, _ in outputs],
                    )
                )
            sides.append(tuple(branches))
        settings = {"join": join}
        if texts:
            settings["condition"] = short_text(" AND ".join(sorted(texts)))
        self.operators.append(Operator(number, "join", tuple(sides), settings))
        marks = tuple(mark for way in (*lefts, *rights) for mark in way.marks)
        return [_Way(env, (f"#{number}",), (), f"<#{number}>", marks)]

    def _with_static(
        self, join: str, condition: Parsed | None, lefts: list[_Way], rights: list[_Way]
    ) -> list[_Way]:
        """Each way of the stream, beside the static table."""
        streaming = [way for way in (*lefts, *rights) if way.reads]
        found = []
        for way in streaming or lefts[:1]:
            others = rights if way in lefts else lefts
            env = {**way.env, **_merged(others)}
            text = " AND ".join(sorted(self._terms.conditions(condition, env)) if condition else [])
            beside = ";".join(f"{o.shape}[{'&'.join(sorted(o.filters))}]" for o in others)
            side = "" if join == "Inner" else "left" if way in lefts else "right"
            filters = way.filters
            found.append(
                replace(
                    way, env=env, shape=f"join({join},{side},{text},{way.shape},{beside})",
                    filters=filters,
                )
            )  # fmt: skip
        return found

    def _of_python(self, plan: LogicalPlan) -> list[_Way]:
        number = self._begin("python")
        ways = self.ways(plan.inputs[0])
        node = plan.java()
        settings = {}
        for name in ("outputMode", "timeMode", "timeout"):
            if name in plan.fields:
                settings[name] = str(getattr(node, name)().toString())
        function = plan.expression("functionExpr")
        settings["code"] = self._terms.print_of(function) if function else "?"
        if "stateType" in plan.fields:
            settings["state"] = str(node.stateType().simpleString())
        if plan.kind.startswith("TransformWithState") and function:
            settings |= self._terms.code.variables(function.java().func())
        groups = plan.expressions("groupingAttributes")
        attributes = [one.id for one in groups] or [
            id
            for id, _, _ in plan.inputs[0].outputs()[: plan.fields.get("groupingAttributesLen", 0)]
        ]
        columns = [id for id, _, _ in plan.inputs[0].outputs()]
        branches = tuple(
            way.branch([way.term(id) for id in attributes], [way.term(id) for id in columns])
            for way in ways
        )
        sides = [branches]
        for child in plan.inputs[1:]:  # the initial state
            sides.append(tuple(way.branch() for way in self.ways(child)))
        settings["initial"] = "yes" if plan.fields.get("hasInitialState") else ""
        self.operators.append(Operator(number, "python", tuple(sides), settings))
        env = {id: (f"#{number}.{name}:{kind}", kind) for id, name, kind in plan.outputs()}
        marks = tuple(mark for way in ways for mark in way.marks)
        return [_Way(env, (f"#{number}",), (), f"<#{number}>", marks)]

    _of_flatmapgroupsinpandaswithstate = _of_python
    _of_transformwithstateinpyspark = _of_python
    _of_transformwithstateinpandas = _of_python

    # -- small things ----------------------------------------------------------------------------

    def _below(self, plan: LogicalPlan) -> list[_Way]:
        return self.ways(plan.inputs[0])

    def _below_of(self, child: LogicalPlan) -> list[_Way]:
        return self.ways(child)

    def _term(self, one: Parsed, env: Env) -> Term:
        text, kind = self._terms.typed(one, env)
        return Term(short_text(text), kind, one.name)


def _merged(ways: Sequence[_Way]) -> Env:
    """What columns are made of, whichever way a row came."""
    env: Env = {}
    for way in ways:
        for id, (text, kind) in way.env.items():
            known = env.get(id)
            env[id] = (text, kind) if known is None else (either(known[0], text), kind)
    return env


def _digest_of_rows(plan: LogicalPlan) -> str:
    import hashlib

    return hashlib.sha256(str(plan.java().data().toString()).encode()).hexdigest()[:12]
