"""A YAML file to a pipeline; all its problems at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import TypeVar

from evertable.define import entries
from evertable.define.placeholders import Placeholders
from evertable.define.yaml_tree import Path, Tree, parse
from evertable.errors import DefinitionError, Finding
from evertable.location import Location
from evertable.model.names import did_you_mean
from evertable.model.pipeline import Pipeline, Query

TOP_KEYS = ("name", "storage", "spark", "parameters", "streams", "statics", "views", "tables")

T = TypeVar("T")


def read(
    file: str,
    sets: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Pipeline | None, list[Finding]]:
    """What a YAML file defines, and everything that is wrong in it.

    Entries that are wrong are left out of the pipeline, so that the others can be judged too.
    """
    try:
        text = FilePath(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise DefinitionError.of(
            "YAML_INVALID", "this is not UTF-8 text", place=Location(file)
        ) from e
    except OSError as e:
        raise DefinitionError.of(
            "FILE_UNREADABLE", f'file "{file}" cannot be read: {e.strerror}'
        ) from e
    env = os.environ if environment is None else environment
    return _Reader(parse(file, text), sets or {}, env).read()


class _Reader:
    def __init__(self, tree: Tree, sets: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._tree = tree
        self._findings: list[Finding] = list(tree.findings)
        self._sets = sets
        self._environment = environment
        self._root = os.path.dirname(os.path.abspath(tree.file))

    def read(self) -> tuple[Pipeline | None, list[Finding]]:
        document = self._tree.value
        if not isinstance(document, dict):
            raise DefinitionError.of(
                "YAML_INVALID",
                "a pipeline is a mapping with `streams:` and `tables:`",
                place=Location(self._tree.file, 1),
                hint="`evertable new` makes a first one",
            )
        self._placeholders = Placeholders(self._parameters(document), self._environment)
        document = {key: self._filled(value, (key,)) for key, value in document.items()}
        for key in document:
            if key not in TOP_KEYS:
                self._add(
                    "KEY_UNKNOWN",
                    f'a pipeline has no key "{key}"',
                    (key,),
                    did_you_mean(key, TOP_KEYS) or f"known keys: {', '.join(TOP_KEYS)}",
                )
        if not document.get("tables"):
            self._add("KEY_MISSING", "the pipeline has no tables, so nothing would run", ())

        made = {
            "streams": self._section(document, "streams", self._stream),
            "statics": self._section(document, "statics", self._static),
            "views": self._section(document, "views", self._view),
            "tables": self._section(document, "tables", self._table),
        }
        self._findings += names_taken_twice(
            [(section[:-1], value) for section in made for value in made[section]]
        )
        keys: dict[str, object] = {
            "name": document.get("name", FilePath(self._tree.file).stem.replace("-", "_")),
            "root": self._root,
            **{k: document[k] for k in ("storage", "spark") if k in document},
        }
        pipeline, findings = entries.pipeline({**keys, **made}, self._tree.place)
        self._findings += findings
        return pipeline, self._findings

    def _parameters(self, document: dict[str, object]) -> dict[str, str]:
        declared = document.get("parameters") or {}
        if not isinstance(declared, dict):
            self._add("VALUE_INVALID", "`parameters` is no mapping", ("parameters",))
            declared = {}
        outside = Placeholders({}, self._environment)
        values: dict[str, str] = {}
        for name, value in declared.items():
            text = "" if value is None else str(value)
            text, findings = outside.fill(text, secrets_allowed=False)
            self._findings += [f.at(self._tree.place(("parameters", name))) for f in findings]
            values[name] = text
        for name, value in self._sets.items():
            if name not in values:
                self._findings.append(
                    Finding(
                        "PARAMETER_UNKNOWN",
                        f'--set names "{name}", which is no parameter of this pipeline',
                        self._tree.place(("parameters",)),
                        hint=did_you_mean(name, values) or "declare it under `parameters:`",
                    )
                )
            values[name] = value
        return values

    def _filled(self, value: object, path: Path) -> object:
        """The value with every placeholder in it filled in."""
        if path[0] == "parameters":
            return value
        if isinstance(value, dict):
            return {k: self._filled(v, (*path, k)) for k, v in value.items()}
        if isinstance(value, list):
            return [self._filled(v, (*path, i)) for i, v in enumerate(value)]
        if not isinstance(value, str):
            return value
        text, findings = self._placeholders.fill(value, secrets_allowed=_is_option(path))
        place = self._tree.text_place(path) if "\n" in value else self._tree.place(path)
        self._findings += [f.at(place) for f in findings]
        return text

    def _section(
        self,
        document: dict[str, object],
        section: str,
        make: Callable[[str, object, Path], T | None],
    ) -> tuple[T, ...]:
        entries_of = document.get(section) or {}
        if not isinstance(entries_of, dict):
            self._add("VALUE_INVALID", f"`{section}` is no mapping of names", (section,))
            return ()
        made = [make(str(name), entry, (section, name)) for name, entry in entries_of.items()]
        return tuple(value for value in made if value is not None)

    def _stream(self, name: str, entry: object, path: Path) -> object:
        return self._entry(
            path, entry, lambda keys: entries.stream(name, keys, self._at(path), self._root)
        )

    def _static(self, name: str, entry: object, path: Path) -> object:
        return self._entry(
            path, entry, lambda keys: entries.static(name, keys, self._at(path), self._root)
        )

    def _view(self, name: str, entry: object, path: Path) -> object:
        query = self._query(entry, path, f'view "{name}"')
        if query is None:
            return None
        value, findings = entries.view(name, query, self._at(path))
        self._findings += findings
        return value

    def _table(self, name: str, entry: object, path: Path) -> object:
        def make(keys: dict[str, object]) -> tuple[object, list[Finding]]:
            if "query" not in keys:
                return None, [
                    Finding("KEY_MISSING", f'table "{name}" has no "query"', self._tree.place(path))
                ]
            query = self._query(keys["query"], (*path, "query"), f'table "{name}"')
            value, findings = entries.table(
                name, keys, query or Query(sql="SELECT 1"), self._at(path)
            )
            return (value if query else None), findings

        return self._entry(path, entry, make)

    def _entry(
        self,
        path: Path,
        entry: object,
        make: Callable[[dict[str, object]], tuple[T | None, list[Finding]]],
    ) -> T | None:
        if not isinstance(entry, dict):
            self._add(
                "VALUE_INVALID", f'{str(path[0])[:-1]} "{path[-1]}" is no mapping of keys', path
            )
            return None
        value, findings = make(entry)
        self._findings += findings
        return value

    def _query(self, value: object, path: Path, what: str) -> Query | None:
        """SQL in the file, `{file: x.sql}`, or `{python: "mod.py:function"}`."""
        if isinstance(value, str) and value.strip():
            return Query(sql=value, location=self._tree.text_place(path))
        if isinstance(value, dict) and len(value) == 1:
            kind, text = next(iter(value.items()))
            if kind == "file" and isinstance(text, str):
                return self._sql_file(text, path, what)
            if kind == "python" and isinstance(text, str):
                module, _, function = text.rpartition(":")
                if module and function.isidentifier():
                    return Query(python=text, location=self._tree.place((*path, "python")))
        self._add(
            "QUERY_INVALID",
            f"the query of {what} is neither SQL nor a file nor a function",
            path,
            'SQL text, {file: "query.sql"}, or {python: "module.py:function"}',
        )
        return None

    def _sql_file(self, name: str, path: Path, what: str) -> Query | None:
        file = os.path.join(self._root, name)
        try:
            text = FilePath(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
            self._add(
                "FILE_UNREADABLE", f'"{name}", the query of {what}, cannot be read: {reason}', path
            )
            return None
        text, findings = self._placeholders.fill(text, secrets_allowed=False)
        self._findings += [f.at(Location(file, 1)) for f in findings]
        return Query(sql=text, location=Location(file, 1))

    def _at(self, base: Path) -> entries.Places:
        """Places inside one entry; a key moved to `options` is found where it was written."""

        def place(path: Path) -> Location:
            written = (*base, *path)
            if written not in self._tree.key_lines and "options" in path:
                written = (*base, *(p for p in path if p != "options"))
            return self._tree.place(written)

        return place

    def _add(self, code: str, message: str, path: Path, hint: str = "") -> None:
        self._findings.append(Finding(code, message, self._tree.place(path), hint=hint))


def _is_option(path: Path) -> bool:
    """Whether a value ends up in the options of a source or a sink."""
    if path[0] in ("streams", "statics"):
        return len(path) >= 3 and path[2] in ("options", "unchecked_options", "path")
    return path[0] == "tables" and len(path) >= 4 and path[2] == "sink"


def names_taken_twice(named: list[tuple[str, object]]) -> list[Finding]:
    """Streams, statics, views and tables share one space of names, as they do in SQL."""
    seen: dict[str, str] = {}
    findings = []
    for kind, value in named:
        name, place = getattr(value, "name", ""), getattr(value, "location", None)
        if name.lower() in seen:
            findings.append(
                Finding(
                    "NAME_TWICE",
                    f'{kind} "{name}" has the name of a {seen[name.lower()]}',
                    place,
                    hint="SQL does not tell them apart, whatever their case: rename one",
                )
            )
        seen.setdefault(name.lower(), kind)
    return findings


def in_order(findings: list[Finding]) -> list[Finding]:
    """By file and line, as one reads."""
    return sorted(findings, key=lambda f: (f.place.file, f.place.line) if f.place else ("", 0))
