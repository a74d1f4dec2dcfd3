"""Spark's expressions as texts that do not change with the way they are written (private API, 4.3).

`a > 3 AND b` and `b AND 3 < a` are one text, and so are count(*) and sum(1). Columns are told by
what they are made from: `clicks.at:timestamp`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evertable.spark.code_prints import CodePrints
from evertable.spark.constants import is_now, literal_and_other, one_of, span, zoned
from evertable.spark.leaves import read_from

Env = dict[int, tuple[str, str]]  # id of a column -> what it is made from, its type

_LONGEST = 240  # characters; of a longer text its beginning stays, and a digest
# Expressions that only say something of the one in them.
_NOTHING = {
    "Alias", "KnownNullable", "KnownNotNull", "KnownFloatingPointNormalized", "PromotePrecision",
    "NormalizeNaNAndZero", "TempResolvedColumn", "TaggingExpression", "OuterReference",
}  # fmt: skip
_EITHER_WAY = {
    "Add", "Multiply", "EqualTo", "EqualNullSafe", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "Greatest", "Least",
}  # fmt: skip
_TURNED = {"GreaterThan": "LessThan", "GreaterThanOrEqual": "LessThanOrEqual"}
# Fields that are told by the inputs, or that tell nothing of the value.
_NO_SETTING = {
    "class", "num-children", "exprId", "resultId", "qualifier", "metadata", "explicitMetadata",
    "nonInheritableMetadataKeys", "nullable", "evalMode", "evalContext", "name", "func", "mode",
    "resultIds", "child", "left", "right", "children", "isDistinct", "timeZoneId", "dataType",
    "mutableAggBufferOffset", "inputAggBufferOffset", "udfDeterministic", "origin", "pattern",
    "branches", "elseValue", "predicate", "trueValue", "falseValue", "value", "list", "start",
    "interval", "str", "pos", "len", "first", "second", "condition", "input", "aggregateFunction",
    "filter", "initialized", "failOnError", "queryContext", "useTryCast", "ansiEnabled", "hset",
    "options", "schema", "nameExpr", "valExpr", "argument", "arguments", "function",
    "nullOnOverflow", "randomSeed",
}  # fmt: skip
# What JSON leaves out, though the value depends on it.
_LEFT_OUT = ("options", "hset", "patterns")
_BY_CHANCE = {"Rand", "Randn", "Uuid", "Shuffle", "RandStr"}
_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_TIMES = ("timestamp", "date", "time")


@dataclass(frozen=True)
class Parsed:
    """One expression: its fields as JSON, and itself where those leave something out."""

    kind: str
    fields: Mapping[str, Any]
    inputs: tuple[Parsed, ...]
    java: Callable[[], Any]

    @property
    def id(self) -> int:
        """Of a column, or of an alias."""
        found = self.fields.get("exprId") or {}
        return int(found.get("id", -1))

    @property
    def name(self) -> str:
        return str(self.fields.get("name") or "")

    @property
    def type(self) -> str | None:
        return type_text(self.fields["dataType"]) if "dataType" in self.fields else None

    def walk(self) -> Iterator[Parsed]:
        yield self
        for one in self.inputs:
            yield from one.walk()


def parsed(flat: Sequence[dict[str, Any]], java: Callable[[], Any]) -> Parsed:
    """An expression from the flat list that Spark makes of it."""
    rest = iter(flat)

    def one(java: Callable[[], Any]) -> Parsed:
        fields = next(rest)

        def child(number: int) -> Callable[[], Any]:
            return lambda: java().children().apply(number)

        inputs = tuple(one(child(i)) for i in range(fields["num-children"]))
        return Parsed(fields["class"].rpartition(".")[2].rstrip("$"), fields, inputs, java)

    return one(java)


def short_text(text: str) -> str:
    """The text, or its beginning and a digest of it."""
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: _LONGEST - 20]}…{digest}"


def type_text(kind: Any) -> str:
    """A type as Spark's JSON has it, in short."""
    if isinstance(kind, str):
        span = kind.startswith("interval ") and "year" not in kind and "month" not in kind
        return "interval" if span else _TYPES.get(kind, kind)
    match kind.get("type"):
        case "struct":
            inner = ",".join(f"{f['name']}:{type_text(f['type'])}" for f in kind["fields"])
            return f"struct<{inner}>"
        case "array":
            return f"array<{type_text(kind['elementType'])}>"
        case "map":
            return f"map<{type_text(kind['keyType'])},{type_text(kind['valueType'])}>"
    return str(kind.get("class", kind)).rpartition(".")[2]


class Terms:
    """Makes texts of expressions."""

    def __init__(self, code: CodePrints, *, clock: bool = False) -> None:
        self.code = code
        self._clock = clock  # the query asks for the time: a moment of now is no constant
        self._records: dict[str, Parsed] = {}  # decoded ones, by their texts
        self._of_record: dict[str, str] = {}  # what each of them is decoded from

    def typed(self, one: Parsed, env: Env) -> tuple[str, str]:
        """What an expression is made from, and its type where that can be seen."""
        if one.kind in _NOTHING:
            return self.typed(one.inputs[0], env)
        if one.kind == "AttributeReference":
            return env.get(one.id, (f"?{one.name}", one.type or ""))
        if one.kind == "Literal":
            value = str(one.fields.get("value"))
            if one.type == "binary" and value != "None":
                value = hashlib.sha256(bytes(one.java().value())).hexdigest()[:16]
            if self._clock and is_now(value, one.type or ""):
                return f"now():{one.type}", one.type or ""
            return f"{span(value) if one.type == 'interval' else value}:{one.type}", one.type or ""
        if one.kind == "AggregateExpression":
            return self._aggregate(one, env), self._type_of(one.inputs[0], env)
        return self._text(one, env), self._type_of(one, env)

    def _text(self, one: Parsed, env: Env) -> str:
        window = self._window(one, env)
        if window:
            return window
        kind = one.kind
        if kind in _BY_CHANCE:
            return f"{kind}()"
        texts = [self.typed(child, env)[0] for child in one.inputs]
        if kind == "GetStructField" and texts[0] in self._records:
            return self._field_of_record(one, texts[0])
        match kind:
            case "And" | "Or":
                return self._logical(one, env)
            case "If":
                return f"Case({','.join(texts)})"
            case "CaseWhen":
                if len(texts) % 2 == 0:
                    texts.append(f"None:{self._type_of(one, env) or 'void'}")
                return f"Case({','.join(texts)})"
            case "In":
                return one_of(texts[0], texts[1:])
            case "InSet":
                return one_of(texts[0], self._set_of(one))
            case "Cast":
                return self._cast(one, env, texts[0])
            case "NamedLambdaVariable":
                return re.sub(r"_\d+$", "", one.name)  # PySpark numbers them
            case _ if "Subquery" in kind:
                return f"{kind}({_digest(_subquery(one))})"
            case _ if "func" in one.fields:  # a Python function
                return f"py#{self.print_of(one)}({','.join(texts)}):{one.type}"
            case _ if kind in _TURNED:
                return f"{_TURNED[kind]}({texts[1]},{texts[0]})"
            case _ if kind in _EITHER_WAY:
                texts.sort()
        text = f"{kind}{self._settings(one)}({','.join(texts)})"
        if kind in ("JsonToStructs", "CsvToStructs"):
            self._records[text] = one
            self._of_record[text] = texts[0]
        return text

    def print_of(self, one: Parsed) -> str:
        """Of the user's code in an expression."""
        try:
            return self.code.of(one.java().func())
        except Exception:  # not to be seen: then any change of it is not either
            return "unseen"

    def conditions(self, one: Parsed, env: Env) -> list[str]:
        """The parts of a condition that all have to be true."""
        if one.kind == "And":
            return [text for child in one.inputs for text in self.conditions(child, env)]
        if one.kind == "EqualNullSafe" and one.inputs[1].fields.get("value") == "true":
            return self.conditions(one.inputs[0], env)  # a row for which it is NULL goes, too
        return [self.typed(one, env)[0]]

    def aggregates(self, results: Sequence[Parsed], env: Env) -> list[str]:
        """The aggregates of a grouping, in the order in which Spark keeps them."""
        found = (
            self._aggregate(part, env)
            for one in results
            for part in one.walk()
            if part.kind == "AggregateExpression"
        )
        return list(dict.fromkeys(found))

    def equalities(
        self, condition: Parsed | None, left: Env, right: Env
    ) -> tuple[list[tuple[Parsed, Parsed]], list[Parsed]]:
        """What of a join's condition is equal, left and right; and the rest of it."""
        equal: list[tuple[Parsed, Parsed]] = []
        others: list[Parsed] = []
        for part in _conjuncts(condition) if condition else ():
            if part.kind in ("EqualTo", "EqualNullSafe"):
                one, other = part.inputs
                if _within(one, left) and _within(other, right):
                    equal.append((one, other))
                    continue
                if _within(one, right) and _within(other, left):
                    equal.append((other, one))
                    continue
            others.append(part)
        return equal, others

    def expanded(self, texts: Sequence[str]) -> str:
        """A column that each row of the input gives several times."""
        windows = [re.match(r"window\((.*),size=(\d+),slide=(\d+),at=(-?\d+)\)$", t) for t in texts]
        found = [w for w in windows if w]
        if len(found) == len(texts) and len({(w[1], w[2], w[3]) for w in found}) == 1:
            at = min(int(w[4]) for w in found)
            return f"window({found[0][1]},size={found[0][2]},slide={found[0][3]},at={at})"
        return f"each({'|'.join(texts)})"

    # -- one kind of expression each ---------------------------------------------------------------

    def _logical(self, one: Parsed, env: Env) -> str:
        parts = sorted({self.typed(part, env)[0] for part in _flat(one, one.kind)})
        if one.kind == "Or":
            equal = [re.fullmatch(r"EqualTo\((.*)\)", part) for part in parts]
            split = [literal_and_other(match[1]) for match in equal if match]
            if len(split) == len(parts) and all(split) and len({s[1] for s in split if s}) == 1:
                told = [s for s in split if s]
                return one_of(told[0][1], [s[0] for s in told])
        return f"{one.kind}({','.join(parts)})" if len(parts) > 1 else parts[0]

    def _aggregate(self, one: Parsed, env: Env) -> str:
        function = one.inputs[0]
        filters = [self.typed(f, env)[0] for f in one.inputs[1:]]
        distinct = "distinct " if one.fields.get("isDistinct") else ""
        counted = "" if distinct else self._counted(function, env)
        if counted:
            where = [*([] if counted == "*" else [counted]), *filters]
            return f"count_if({' AND '.join(sorted(where))})" if where else "count(*)"
        where = [f" where {' AND '.join(filters)}"] if filters else []
        return f"{distinct}{self.typed(function, env)[0]}{''.join(where)}"

    def _counted(self, function: Parsed, env: Env) -> str:
        """What is counted by a count, or by a sum of ones: `*`, or a condition."""
        if function.kind not in ("Count", "Sum") or len(function.inputs) != 1:
            return ""
        given = function.inputs[0]
        while given.kind in _NOTHING or (given.kind == "Cast" and given.inputs):
            given = given.inputs[0]
        counts = function.kind == "Count"
        whole = self._type_of(function.inputs[0], env) in ("int", "bigint", "smallint", "tinyint")
        if given.kind == "Literal":
            value = given.fields.get("value")
            return "*" if value is not None and (counts or (value == "1" and whole)) else ""
        if given.kind not in ("If", "CaseWhen"):
            return ""
        parts = list(given.inputs)
        if len(parts) not in (2, 3) or any(p.kind != "Literal" for p in parts[2:]):
            return ""
        yes, no = parts[1], parts[2] if len(parts) == 3 else None
        nothing = no is None or no.fields.get("value") is None
        condition = self.typed(parts[0], env)[0]
        if counts and nothing and yes.kind == "Literal" and yes.fields.get("value") is not None:
            return condition
        zero = no is not None and no.fields.get("value") == "0"
        one_each = yes.kind == "Literal" and yes.fields.get("value") == "1"
        if not counts and zero and one_each and whole:
            return condition
        # count_if(c) comes as count(if(not c, null, c)), where NULL counts as false
        null_first = yes.kind == "Literal" and yes.fields.get("value") is None
        if counts and null_first and len(given.inputs) == 3:
            kept = self.typed(given.inputs[2], env)[0]
            told = {f"Not({kept})", f"EqualTo(false:boolean,{kept})"}
            return kept if condition in told else ""
        return ""

    def _cast(self, one: Parsed, env: Env, text: str) -> str:
        target = one.type or ""
        source = self.typed(one.inputs[0], env)[1]
        if source == target:
            return text
        timed = target.startswith(_TIMES) or source.startswith(_TIMES)
        zone = f"@{one.fields.get('timeZoneId')}" if timed and zoned(source, target) else ""
        return f"Cast({text} as {target}{zone})"

    def _field_of_record(self, one: Parsed, record: str) -> str:
        """A field of a decoded record does not depend on the fields beside it."""
        made = self._records[record]
        field = made.fields["schema"]["fields"][int(one.fields["ordinal"])]
        text = self._of_record[record]
        kind = type_text(field["type"])
        options = self._left_out(made, "options")
        zone = f"@{made.fields.get('timeZoneId')}" if "timestamp" in kind or "date" in kind else ""
        name = field["name"] if made.kind == "JsonToStructs" else f"[{one.fields['ordinal']}]"
        return f"{made.kind}({text},{name}:{kind}{zone},{options})"

    def _settings(self, one: Parsed) -> str:
        found = []
        for name, value in sorted(one.fields.items()):
            if name in _NO_SETTING or value is None:
                continue
            if (
                isinstance(value, int)
                and not isinstance(value, bool)
                and value in range(len(one.inputs))
                and name not in ("ordinal", "offset", "count", "limit")
            ):
                continue  # the number of an input
            if isinstance(value, list) and all(isinstance(v, int) for v in value):
                continue
            if isinstance(value, dict | list):
                value = type_text(value) if isinstance(value, dict) and "type" in value else ""
            if value != "":
                found.append(f"{name}={value}")
        if "schema" in one.fields and isinstance(one.fields["schema"], dict):
            found.append(f"schema={type_text(one.fields['schema'])}")
        for name in _LEFT_OUT:
            if name in one.fields and one.fields[name] is None:
                found.append(f"{name}={self._left_out(one, name)}")
        zone = one.fields.get("timeZoneId")
        if zone is not None:
            found.append(f"@{zone}")
        if one.kind in ("ScalaUDF", "Invoke", "StaticInvoke"):
            found.append(str(one.fields.get("functionName") or one.name))
        return f"[{';'.join(found)}]" if found else ""

    def _left_out(self, one: Parsed, name: str) -> str:
        try:
            return re.sub(r"^Map\(|\)$", "", str(getattr(one.java(), name)().toString()))
        except Exception:
            return "?"

    def _set_of(self, one: Parsed) -> list[str]:
        values = one.java().hset().toSeq()
        kind = self.typed(one.inputs[0], {})[1]
        return [f"{values.apply(i)}:{kind}" for i in range(values.length())]

    def _type_of(self, one: Parsed, env: Env) -> str:
        if one.type is not None:
            return one.type
        if one.kind in _NOTHING or one.kind == "AttributeReference":
            return self.typed(one, env)[1]
        if one.kind in ("Count", "CountIf"):
            return "bigint"
        if one.kind in ("If", "CaseWhen"):
            return self._type_of(one.inputs[1], env)
        if one.kind in ("Coalesce", "Max", "Min", "First", "Last") and one.inputs:
            return self._type_of(one.inputs[0], env)
        try:
            return str(one.java().dataType().simpleString())
        except Exception:
            return ""

    def _window(self, one: Parsed, env: Env) -> str:
        """Spark's arithmetic for a window of time, told as what it is for."""
        if one.kind != "CreateNamedStruct" or len(one.inputs) != 4:
            return ""
        names = [one.inputs[i].fields.get("value") for i in (0, 2)]
        parts = [part for i in (1, 3) for part in one.inputs[i].walk()]
        conversions = [p for p in parts if p.kind == "PreciseTimestampConversion"]
        if names != ["start", "end"] or not conversions:
            return ""
        inner = [c for c in conversions if not any(
            p.kind == "PreciseTimestampConversion" for p in c.inputs[0].walk())]  # fmt: skip
        texts = list(dict.fromkeys(self.typed(c.inputs[0], env)[0] for c in inner))
        slides = [_micros(p.inputs[1]) for p in parts if p.kind == "Remainder"]
        if not slides or None in slides:  # a session
            ends = [t for t in texts if t != texts[0]]
            return f"session_window({texts[0]},{ends[0] if ends else '?'})"
        slide = slides[0] or 0
        begin, end = (_offset(one.inputs[i]) for i in (1, 3))
        shift = {_micros(p.inputs[1]) or 0 for p in parts if p.kind == "Subtract" and len(
            p.inputs) == 2 and p.inputs[1].kind == "Literal" and p.inputs[0].kind ==
            "PreciseTimestampConversion"}  # fmt: skip
        at = begin if not shift - {0} else begin + sum(shift)
        return f"window({texts[0]},size={end - begin},slide={slide},at={at})"


def _subquery(one: Parsed) -> str:
    """A subquery as text, with what its leaves hold or are read from."""
    plan = one.java().plan()
    leaves = plan.collectLeaves()
    told = [str(plan.canonicalized().toString())]
    for i in range(leaves.length()):
        leaf = leaves.apply(i)
        local = leaf.nodeName() == "LocalRelation"
        told.append(str(leaf.data().toString()) if local else read_from(leaf))
    return "\n".join(told)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _micros(one: Parsed) -> int | None:
    value = one.fields.get("value") if one.kind == "Literal" else None
    return int(value) if value is not None else None


def _offset(one: Parsed) -> int:
    """What is added to the start of a slide."""
    while one.kind in _NOTHING or one.kind == "PreciseTimestampConversion":
        one = one.inputs[0]
    total = 0
    while one.kind in ("Add", "Subtract") and one.inputs[1].kind == "Literal":
        number = _micros(one.inputs[1]) or 0
        total += number if one.kind == "Add" else -number
        one = one.inputs[0]
    return total


def _flat(one: Parsed, kind: str) -> Iterator[Parsed]:
    for child in one.inputs:
        if child.kind == kind:
            yield from _flat(child, kind)
        else:
            yield child


def _conjuncts(one: Parsed) -> Iterator[Parsed]:
    if one.kind == "And":
        yield from _flat(one, "And")
    else:
        yield one


def _within(one: Parsed, env: Env) -> bool:
    """Whether an expression is made of columns of that side, and of some."""
    ids = [part.id for part in one.walk() if part.kind == "AttributeReference"]
    return bool(ids) and all(id in env for id in ids)
