"""`evertable new --kafka`: the pipeline it writes, and that both its forms are one. No JVM."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evertable.cli.main import main
from evertable.project import open_pipeline

FLAGS = {"ads.yaml": ["--kafka"], "pipeline.py": ["--kafka", "--python"]}


@pytest.fixture(params=FLAGS)
def made(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "ads", *FLAGS[request.param]]) == 0
    return tmp_path / "ads" / request.param


def test_it_loads_without_a_kafka_and_names_what_it_is_made_of(made, monkeypatch):
    monkeypatch.setenv("KAFKA", "elsewhere:1")
    model = open_pipeline(str(made))
    assert model.name == "ads"
    assert [s.name for s in model.streams] == ["clicks", "ticks"]
    assert [t.name for t in model.tables] == [
        "clicks_made_up",
        "clicks_per_window",
        "clicks_per_brand",
    ]
    stream, sink = model.streams[0], model.tables[0].sinks[0]
    for options in (stream.options, sink.options):
        assert options["kafka.bootstrap.servers"] == "elsewhere:1"
    assert (stream.options["subscribe"], sink.options["topic"]) == ("clicks", "clicks")


def test_both_forms_are_one_pipeline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAFKA", raising=False)
    models = []
    for file, flags in FLAGS.items():
        assert main(["new", f"{file[:3]}/ads", *flags]) == 0
        models.append(open_pipeline(f"{file[:3]}/ads/{file}"))
    yaml, python = models
    assert yaml.streams[0].options["kafka.bootstrap.servers"] == "localhost:9092"
    assert replace(yaml, tables=()) == replace(python, tables=())
    for one, other in zip(yaml.tables, python.tables, strict=True):
        assert replace(one, query=other.query) == other
