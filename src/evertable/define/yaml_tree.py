"""YAML as plain values with the line of every key and value kept.

Scalars follow YAML 1.2's core rules: `on`, `yes` and `2026-01-01` are text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml

from evertable.errors import DefinitionError, Finding
from evertable.location import Location

Path = tuple[str | int, ...]

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_CONSTANTS: dict[str, object] = {"": None, "~": None, "null": None, "true": True, "false": False}
_DEEPEST = 500
_MOST_NODES = 100_000  # aliases of aliases would otherwise grow without end

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass
class Tree:
    """A document: its value, and where each part of it stands."""

    file: str
    value: object = None
    key_lines: dict[Path, int] = field(default_factory=dict)
    text_lines: dict[Path, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def place(self, path: Path) -> Location:
        """The line of the key at this path, or of the nearest one above it."""
        while path and path not in self.key_lines:
            path = path[:-1]
        return Location(self.file, self.key_lines.get(path, 1))

    def text_place(self, path: Path) -> Location:
        """The line where the text at this path begins (below the `|` of a block)."""
        line = self.text_lines.get(path)
        return Location(self.file, line) if line else self.place(path)


def parse(file: str, text: str) -> Tree:
    """The tree of a YAML text; DefinitionError where it is not YAML."""
    if _nested_too_deep(text):
        raise DefinitionError(
            Finding("YAML_INVALID", f"more than {_DEEPEST} brackets are open", Location(file, 1))
        )
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as e:
        raise _not_yaml(file, e) from e
    tree = Tree(file)
    if node is not None:
        tree.value = _Builder(tree).build(node, ())
    return tree


def _nested_too_deep(text: str) -> bool:
    """The parser in C calls itself for each open bracket, and has no limit of its own."""
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > _DEEPEST:
            return True
    return False


def _not_yaml(file: str, error: yaml.YAMLError) -> DefinitionError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None)
    return DefinitionError(
        Finding(
            "YAML_INVALID",
            f"this is not YAML: {problem}",
            Location(file, mark.line + 1 if mark else 0),
            detail=context or "",
            hint="a tab for indentation, a missing space after `:` or an open quote are usual",
        )
    )


class _Builder:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._nodes = 0

    def build(self, node: yaml.Node, path: Path) -> object:
        self._nodes += 1
        if self._nodes > _MOST_NODES or len(path) > 50:
            raise DefinitionError(
                Finding(
                    "YAML_INVALID",
                    "the document has too many nodes, or an alias that contains itself",
                    Location(self._tree.file, node.start_mark.line + 1),
                )
            )
        self._tree.key_lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*path, i)) for i, child in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        merged: dict[str, object] = {}
        own: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            line = key_node.start_mark.line + 1
            if key == "<<":
                merged = {**self._merged(value_node, path), **merged}
                continue
            if key in own:
                first = self._tree.key_lines[(*path, key)]
                self._tree.findings.append(
                    Finding(
                        "KEY_TWICE",
                        f'key "{key}" stands here a second time',
                        Location(self._tree.file, line),
                        detail=f"the first one is in line {first}; only one of them would count",
                    )
                )
            self._tree.key_lines[(*path, key)] = line
            own[key] = self.build(value_node, (*path, key))
        return {**merged, **own}

    def _merged(self, node: yaml.Node, path: Path) -> dict[str, object]:
        """What `<<: *other` or `<<: [*one, *other]` brings in; earlier ones win."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, object] = {}
        for one in nodes:
            if isinstance(one, yaml.MappingNode):
                result = {**self._mapping(one, path), **result}
        return result

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        text: str = node.value
        line = node.start_mark.line + 1
        self._tree.text_lines[path] = line + 1 if node.style in ("|", ">") else line
        if node.style:  # quoted; the parser in C says "" of a plain one
            return text
        lowered = text if text in _CONSTANTS else text.lower()
        if lowered in _CONSTANTS:
            return _CONSTANTS[lowered]
        # An option must reach Spark as it is written: 007 and 1.10 stay text.
        if _NUMBER.fullmatch(text):
            number = float(text) if "." in text else int(text)
            return number if str(number) == text else text
        return text
