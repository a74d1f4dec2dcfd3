"""What a checkpoint lacks in order that a later change can be judged: written beside it.

Values only; `keeping` puts them on the disk, `run/manifests.py` makes them of a table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from pydantic import TypeAdapter

from evertable.model.shape import Branch, Operator, Shape, Term

LARGEST = 20_000  # bytes of a manifest


@dataclass(frozen=True, slots=True)
class Source:
    """One use of a stream, or a static table."""

    use: str  # its name in the checkpoint; its place where sources have no names
    stream: str
    format: str
    identity: Mapping[str, str] = field(default_factory=dict)  # options that say what is read
    options: Mapping[str, str] = field(default_factory=dict)  # all others
    schema: str = ""
    replays: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """One sink of a table."""

    format: str
    identity: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    delivery: str = ""
    ledger: bool = False  # it knows which batches it has
    keyed: bool = False
    adds_columns: bool = False  # new columns are added to it
    files: bool = False  # Spark's own log of batches is in its folder
    code: str = ""  # the print of a function of the user's


@dataclass(frozen=True, slots=True)
class Manifest:
    """One table, as it was started."""

    table: str
    mode: str = "append"
    trigger: str = "default"
    policy: str = "min"
    named: bool = True
    shape: Shape | None = None
    unknown: str = ""  # why the planner could not be asked
    sources: tuple[Source, ...] = ()  # in the order of the plan
    statics: tuple[Source, ...] = ()
    targets: tuple[Target, ...] = ()
    key: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)  # other keys of the table
    confs: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)  # name -> keyed hash
    versions: Mapping[str, str] = field(default_factory=dict)
    definition: Mapping[str, Any] = field(default_factory=dict)  # for `keep_old`; may be empty
    v: int = 1

    @property
    def columns(self) -> tuple[Term, ...]:
        """The columns of the result."""
        return self.shape.result[0].values if self.shape and self.shape.result else ()

    @property
    def digest(self) -> str:
        """Of all that a verdict looks at; the definition is only how it was written."""
        facts = asdict(replace(self, definition={}))
        return hashlib.sha256(_text(facts).encode()).hexdigest()[:16]


_MANIFEST: TypeAdapter[Manifest] = TypeAdapter(Manifest)


def to_text(manifest: Manifest) -> str:
    """As JSON, of bounded size: long texts become digests first, then the definition goes."""
    text = _written(manifest)
    if len(text.encode()) > LARGEST:
        text = _written(short(manifest))
    if len(text.encode()) > LARGEST:
        text = _written(short(replace(manifest, definition={})))
    if len(text.encode()) > LARGEST:
        text = _written(_folded(short(replace(manifest, definition={}))))
    return text


def from_text(text: str) -> Manifest:
    return _MANIFEST.validate_json(text)


def comparable(old: Manifest, new: Manifest) -> Manifest:
    """The new manifest in the form that the old one was kept in."""
    if old == from_text(_written(old)) and _is_folded(old):
        return _folded(short(new))
    return short(new) if _is_short(old) else new


def _written(manifest: Manifest) -> str:
    return _text(asdict(manifest))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


_SHORT = "~"


def short(manifest: Manifest) -> Manifest:
    """Every long text by its digest; equal texts stay equal."""
    if manifest.shape is None or _is_short(manifest):
        return manifest

    def text(given: str) -> str:
        if len(given) <= 24:
            return given
        return f"{_SHORT}{hashlib.sha256(given.encode()).hexdigest()[:12]}"

    def term(one: Term) -> Term:
        return Term(text(one.text), text(one.type), one.name)

    def branch(one: Branch) -> Branch:
        return Branch(
            one.reads, tuple(map(text, one.filters)), text(one.shape),
            tuple(map(term, one.keys)), tuple(map(term, one.values)),
            tuple((text(column), millis) for column, millis in one.marks),
        )  # fmt: skip

    operators = tuple(
        Operator(
            o.id, o.kind, tuple(tuple(map(branch, side)) for side in o.sides),
            {k: text(v) for k, v in o.settings.items()},
        )
        for o in manifest.shape.operators
    )  # fmt: skip
    shape = Shape(operators, tuple(map(branch, manifest.shape.result)))
    return replace(manifest, shape=shape, settings={**manifest.settings, "texts": "short"})


def _is_short(manifest: Manifest) -> bool:
    return manifest.settings.get("texts") in ("short", "folded")


def _is_folded(manifest: Manifest) -> bool:
    return manifest.settings.get("texts") == "folded"


def _folded(manifest: Manifest) -> Manifest:
    """Lists of columns by one digest each: of very wide queries."""
    assert manifest.shape is not None

    def terms(given: tuple[Term, ...]) -> tuple[Term, ...]:
        if len(given) < 20:
            return given
        told = _text([asdict(one) for one in given])
        return (Term(f"{_SHORT}{hashlib.sha256(told.encode()).hexdigest()}", "", "…"),)

    def branch(one: Branch) -> Branch:
        return replace(one, keys=terms(one.keys), values=terms(one.values))

    operators = tuple(
        replace(o, sides=tuple(tuple(map(branch, side)) for side in o.sides))
        for o in manifest.shape.operators
    )
    shape = Shape(operators, tuple(map(branch, manifest.shape.result)))
    sources = tuple(replace(s, schema=s.schema[:40]) for s in manifest.sources)
    statics = tuple(replace(s, schema=s.schema[:40]) for s in manifest.statics)
    settings = {**manifest.settings, "texts": "folded"}
    return replace(manifest, shape=shape, settings=settings, sources=sources, statics=statics)


NAMES = tuple(f.name for f in fields(Manifest))
