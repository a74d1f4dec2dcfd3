"""What README and docs say is true: examples load, commands exist, docstrings run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
import yaml

import evertable.cli.terminal
import evertable.model.durations
import evertable.model.names
from evertable.cli.main import VERBS
from evertable.project import open_pipeline, pipeline_in

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize(
    "module",
    [evertable.cli.terminal, evertable.model.durations, evertable.model.names],
    ids=lambda m: m.__name__,
)
def test_docstring_examples(module):
    tried = doctest.testmod(module)
    assert tried.attempted
    assert not tried.failed


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_yaml_of_the_readme_loads(tmp_path):
    (text,) = blocks("yaml")
    (tmp_path / "ads.yaml").write_text(text)
    assert [t.name for t in open_pipeline(str(tmp_path / "ads.yaml")).tables] == [
        "clicks_per_brand", "newest_click",
    ]  # fmt: skip


def test_the_python_of_the_readme_makes_the_same_table(tmp_path):
    (text,) = blocks("python")
    (tmp_path / "readme_pipeline.py").write_text(text)
    model = pipeline_in(str(tmp_path / "readme_pipeline.py")).model
    assert [(t.name, t.output_mode) for t in model.tables] == [("newest_click", "update")]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_links_of_the_docs_exist(page):
    text = page.read_text()
    for verb in re.findall(r"`evertable (\w+)", text):
        assert verb in VERBS, verb
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def test_every_key_of_a_table_is_in_the_reference():
    from evertable.define.json_schema import json_schema

    reference = (ROOT / "docs/reference.md").read_text()
    properties = json_schema()["properties"]
    for section in ("tables", "streams"):
        for key in properties[section]["additionalProperties"]["properties"]:
            assert f"`{key}" in reference, key


def test_the_templates_are_yaml_with_the_names_that_new_announces():
    text = (ROOT / "src/evertable/define/templates/pipeline.yaml").read_text()
    document = yaml.safe_load(text)
    assert {k: len(document[k]) for k in ("streams", "statics", "views", "tables")} == {
        "streams": 2, "statics": 1, "views": 1, "tables": 2,
    }  # fmt: skip
