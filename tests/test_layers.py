"""The house keeps its shape: who may import whom, and where the JVM may be touched."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import evertable

ROOT = Path(evertable.__file__).parent
NEUTRAL = {"errors", "location", "user_code"}
MAY_IMPORT = {
    "model": set(),
    "define": {"model"},
    "spark": {"model"},
    "sources": {"model", "spark"},
    "sinks": {"model", "spark"},
    "check": {"model"},
    "plan": {"model", "check", "spark"},
    "run": {"model", "check", "spark", "sources", "sinks", "plan"},
    "testing": {"model", "define", "check", "spark", "sources", "sinks", "plan", "run", "project"},
}
FILES = sorted(p for p in ROOT.rglob("*.py") if "templates" not in p.parts)


def imports(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, node
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_nobody_reaches_back_up(file):
    room = file.relative_to(ROOT).parts[0]
    if room not in MAY_IMPORT:
        return
    for module, _ in imports(file):
        if module.startswith("evertable."):
            other = module.split(".")[1]
            assert other == room or other in NEUTRAL | MAY_IMPORT[room], f"{file} imports {module}"


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_the_jvm_is_touched_in_spark_alone(file):
    if file.relative_to(ROOT).parts[0] == "spark":
        return
    for name in ("_jvm", "_jdf", "_jsparkSession", "_jsq", "_jwrite", "import py4j"):
        assert name not in file.read_text(), f"{file} touches {name}"


def test_pyspark_is_imported_only_where_a_jvm_is_needed():
    for file in FILES:
        tree = ast.parse(file.read_text())
        for node in tree.body:  # the top level only: functions may
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None) or node.names[0].name
                assert not module.startswith(("pyspark", "pyarrow", "pandas")), file


def test_modules_stay_small_and_say_why_they_exist():
    for file in FILES:
        text = file.read_text()
        assert len(text.splitlines()) <= 500, file
        assert ast.get_docstring(ast.parse(text)), file
