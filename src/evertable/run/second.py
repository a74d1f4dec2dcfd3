"""A table like another one, under a name and with a target of its own."""

from __future__ import annotations

from dataclasses import replace

from evertable.model.pipeline import SinkSpec, Table


def second_table(table: Table, name: str) -> Table:
    """The same table under another name, into a target of its own."""
    sinks = tuple(_second_sink(table, spec, name) for spec in table.sinks)
    return replace(table, name=name, sinks=sinks)


def _second_sink(table: Table, spec: SinkSpec, name: str) -> SinkSpec:
    options = dict(spec.options)
    for option, value in options.items():
        if option.lower() == "table":
            schema, dot, _ = value.rpartition(".")
            return replace(spec, options={**options, option: f"{schema}{dot}{name}"})
    return replace(spec, options={**options, "table": name}) if spec.format == "postgres" else spec
