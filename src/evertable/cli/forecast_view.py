"""How a forecast is asked for on the command line, and how it is shown."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from evertable.check.foreseen import key_names
from evertable.cli.terminal import Terminal, clean, count, duration, size
from evertable.errors import DefinitionError

if TYPE_CHECKING:
    from evertable.run.forecasting import Asked, Forecasted, Told

_UNITS = {"": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--forecast", action="store_true", help="how much state there will be, from a small sample"
    )
    parser.add_argument("--sample", type=int, default=20_000, metavar="ROWS", help="of each stream")
    parser.add_argument("--memory", default="4 GB", help="how long growing state takes to fill it")
    parser.add_argument(
        "--rate", action="append", default=[], metavar="STREAM=ROWS", help="rows a second, as given"
    )
    parser.add_argument(
        "--keys", action="append", default=[], metavar="TABLE=NUMBER", help="keys, as given"
    )


def asked(options: argparse.Namespace) -> Asked | None:
    """What the command line asks of a forecast; None where it asks for none."""
    from evertable.run.forecasting import Asked

    if not options.forecast:
        return None
    rates, keys = _numbers(options.rate, "--rate"), _numbers(options.keys, "--keys")
    return Asked(max(1, options.sample), _bytes(options.memory), rates, keys)


def _numbers(texts: list[str], option: str) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            found[name] = float(value.replace(",", "").replace("_", ""))
        except ValueError:
            raise DefinitionError.of(
                "COMMAND_INVALID",
                f'{option} "{clean(text)}" is no name and number',
                hint=f"{option} clicks=1200",
            ) from None
    return found


def _bytes(text: str) -> float:
    """4 GB, in bytes.

    >>> _bytes("4 GB"), _bytes("500mb")
    (4000000000.0, 500000000.0)
    """
    told = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?b)?\s*", text.lower())
    if not told:
        raise DefinitionError.of(
            "COMMAND_INVALID", f'--memory "{clean(text)}" is no size', hint="--memory 8GB"
        )
    return float(told[1]) * _UNITS[told[2] or ""]


def show(terminal: Terminal, forecasts: list[Forecasted]) -> None:
    """A line an operator, under the header of its columns; then what was read."""
    rows = [
        [one.table.name, _operator(told), *_numbers_of(told)]
        for one in forecasts
        for told in one.operators
    ]
    if not rows:
        terminal.line(f"{terminal.mark('fact')} no table keeps state")
    else:
        header = ["table", "operator", "rows of state", "between", "about", "full in"]
        terminal.table(header, rows, {2, 4})
    read = {name: sample for one in forecasts for name, sample in one.samples.items()}
    for name, sample in read.items():
        rows_read = sample.rows.num_rows
        part = f" ({rows_read / sample.total:.1%})" if sample.total else ""
        rate = f", {count(sample.rate)} rows/s" if sample.rate else ""
        terminal.line(
            f"{terminal.mark('fact')} {name}: read {count(rows_read)} of about "
            f"{count(sample.total)} rows{part}{rate}"
        )
    for one in forecasts:
        for told in one.operators:
            if told.forecast is None:
                terminal.line(
                    f"{terminal.mark('look')} {one.table.name}, {_operator(told)}: cannot be told, "
                    f"{clean(told.why)}"
                )


def _operator(told: Told) -> str:
    kept = told.kept
    return f"join, {kept.of}" if kept.kind == "join" else f"{kept.kind}, {key_names(kept.keys)}"


def _numbers_of(told: Told) -> list[str]:
    found = told.forecast
    if found is None:
        return ["?", "", "", ""]
    full = duration(found.full_in) if found.full_in else "never" if found.grows else ""
    return [
        f"{count(found.rows)}{' a day' if found.grows else ''}",
        f"{count(found.low)} and {count(found.high)}",
        size(found.bytes),
        full,
    ]


def as_json(forecasts: list[Forecasted]) -> dict[str, Any]:
    """Table -> its operators."""
    return {
        one.table.name: [
            {
                "operator": told.kept.kind,
                "keys": list(told.kept.keys),
                "of": told.kept.of or None,
                "rows": _whole(told, "rows"),
                "low": _whole(told, "low"),
                "high": _whole(told, "high"),
                "bytes": told.forecast.bytes if told.forecast else None,
                "grows": told.forecast.grows if told.forecast else None,
                "full_in_seconds": told.forecast.full_in if told.forecast else None,
                "why": told.why or None,
            }
            for told in one.operators
        ]
        for one in forecasts
    }


def _whole(told: Told, name: str) -> int | None:
    return round(getattr(told.forecast, name)) if told.forecast else None
