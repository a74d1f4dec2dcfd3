"""How much state each operator of a table will hold, from a sample of its real input."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evertable.check.forecast import Flow, Forecast, forecast
from evertable.check.keys_model import fit, uniform
from evertable.errors import EvertableError
from evertable.model.durations import millis
from evertable.model.facts import Kept
from evertable.model.pipeline import Pipeline, Table
from evertable.run.analysis import Analysed
from evertable.run.sampling import CannotSample, Sample, given, sample
from evertable.sources.registry import SOURCES
from evertable.spark.frames import Frames
from evertable.spark.operator_inputs import Came, NotAlike, came
from evertable.spark.schemas import SchemaStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GIVES_AS_IT_GETS = {"dedup", "dedup within watermark"}


@dataclass(frozen=True)
class Asked:
    """What a forecast goes by."""

    rows: int = 20_000  # of each stream, at the most
    memory: float = 4e9  # bytes; how long a growing state takes to fill them
    rates: Mapping[str, float] = field(default_factory=dict)  # stream -> rows a second, as given
    keys: Mapping[str, float] = field(default_factory=dict)  # table -> different keys, as given
    after: float | None = None  # input rows after which a growing state is told; a day's without


@dataclass(frozen=True)
class Told:
    """What one operator will hold, or why that cannot be told."""

    kept: Kept
    forecast: Forecast | None
    why: str = ""


@dataclass(frozen=True)
class Forecasted:
    """The state of one table, and what was read to tell it."""

    table: Table
    operators: tuple[Told, ...]
    samples: Mapping[str, Sample]


def forecast_of(
    session: SparkSession,
    pipeline: Pipeline,
    table: Table,
    analysed: Analysed,
    schemas: SchemaStore,
    asked: Asked,
) -> Forecasted:
    """Reads a bounded piece of each stream that has no rate given, and nothing else."""
    plan = analysed.seen.plan
    samples: dict[str, Sample] = {}
    try:
        if not plan.kept:
            return Forecasted(table, (), {})
        inputs: list[tuple[Came, ...]] | None = None
        names = {stream.name for stream in analysed.built.streams}
        if not (names <= set(asked.rates) and table.name in asked.keys):
            for stream in analysed.built.streams:
                topics = list(analysed.sources[stream.name].identity)
                samples[stream.name] = sample(
                    session, pipeline, stream, schemas, asked.rows, topics
                )
            rows = given({name: one.rows for name, one in samples.items()})
            frames = Frames(session, pipeline, SOURCES, schemas, named=False, bounded=rows)
            inputs = came(analysed.frame, frames.of_table(table))
    except (CannotSample, NotAlike, EvertableError) as e:
        why = str(e) if isinstance(e, CannotSample) else "its query cannot be computed as a batch"
        return Forecasted(table, tuple(Told(k, None, why) for k in plan.kept), samples)
    told = tuple(_told(analysed, kept, one, table, samples, asked)
                 for kept, one in _paired(plan.kept, inputs))  # fmt: skip
    return Forecasted(table, told, samples)


def _paired(
    kept: tuple[Kept, ...], inputs: list[tuple[Came, ...]] | None
) -> Iterator[tuple[Kept, Came | None]]:
    """Each thing that is kept with what comes to it; both sides of a join are one operator."""
    number = -1
    for one in kept:
        number += one.side != "right"
        side = 1 if one.side == "right" else 0
        fits = inputs is not None and number < len(inputs) and side < len(inputs[number])
        yield one, inputs[number][side] if fits and inputs else None


def _told(
    analysed: Analysed,
    kept: Kept,
    came: Came | None,
    table: Table,
    samples: Mapping[str, Sample],
    asked: Asked,
) -> Told:
    if set(kept.after) - _GIVES_AS_IT_GETS:
        return Told(kept, None, "its rows come from another operator's groups")
    if kept.derived:
        return Told(kept, None, f"{kept.derived[0]} goes on with time, as new keys do")
    names = _streams(kept, [stream.name for stream in analysed.built.streams])
    rates = [asked.rates.get(n) or (samples[n].rate if n in samples else 0.0) for n in names]
    rate, total = sum(rates), sum(samples[n].total for n in names if n in samples)
    slide = kept.slide or kept.window
    copies = kept.window / slide if kept.kind == "window" and slide else 1.0
    if table.name in asked.keys:
        keys, share, repeats = uniform(asked.keys[table.name]), 1.0, 1.0
    elif came is None or not came.rows:
        return Told(kept, None, "no row of the sample came so far")
    else:
        read = sum(samples[n].rows.num_rows for n in names) or came.rows
        once = {max(1, round(often / copies)): n for often, n in came.counts.items()}
        keys, share = fit(once), came.rows / copies / read
        repeats = came.rows / sum(came.counts.values())
    if not rate and kept.bound == "bounded":
        return Told(kept, None, "no time tells how fast rows come; give --rate STREAM=ROWS")
    flow = Flow(rate * share, keys, total * share, repeats)
    after = (asked.after or total or None) if not rate else asked.after
    found = forecast(kept, flow, _batch(table, names, samples, rate), asked.memory, after)
    return Told(kept, found, "" if found else "it depends on rows or code")


def _streams(kept: Kept, names: list[str]) -> list[str]:
    """The streams that come into an operator, by the names of their uses (`bids`, `bids_2`)."""
    uses = kept.of.split(", ")
    found = [n for n in names for use in uses if use == n or re.fullmatch(rf"{n}_\d+_*", use)]
    return found or names


def _batch(table: Table, names: list[str], samples: Mapping[str, Sample], rate: float) -> float:
    """The seconds of rows that come in one batch."""
    if table.trigger.kind == "processing_time":
        return millis(table.trigger.interval or "0 seconds") / 1000
    if not table.trigger.ends or not rate:
        return 0.0
    return max((samples[n].batch / samples[n].rate for n in names
                if n in samples and samples[n].rate), default=0.0)  # fmt: skip
