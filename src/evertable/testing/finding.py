"""Which pipeline a test is about."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evertable.errors import DefinitionError
from evertable.project import discover


def pipeline_file(node: pytest.Item, config: pytest.Config) -> str:
    """Of its marker, of the settings, else the nearest folder's from the test's upwards."""
    marker = node.get_closest_marker("pipeline")
    if marker:
        return str(node.path.parent / str(marker.args[0]))
    setting = str(config.getini("evertable_pipeline"))
    if setting:
        return str(config.rootpath / setting)
    return nearest(node.path.parent, config.rootpath)


def nearest(folder: Path, top: Path) -> str:
    """The pipeline of a folder, or of the first one above it that has one."""
    for place in (folder, *folder.parents):
        try:
            return os.path.abspath(discover(str(place)))
        except DefinitionError as e:
            if e.findings[0].code != "PIPELINE_MISSING" or place == top:
                raise
    raise DefinitionError.of("PIPELINE_MISSING", f'no folder from "{folder}" up has a pipeline')
