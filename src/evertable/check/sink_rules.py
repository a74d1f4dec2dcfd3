"""Rules about where a table's rows go, and what happens to those that are there."""

from __future__ import annotations

from collections.abc import Iterator

from evertable.check.known import Known, Rule
from evertable.check.options import one_of, options
from evertable.check.pages import says
from evertable.errors import Finding
from evertable.model.names import did_you_mean
from evertable.model.pipeline import SinkSpec, Table, place_of


@says(
    "FORMAT_UNKNOWN",
    "SINK_MODE",
    "OPTION_UNKNOWN",
    "OPTION_MISPLACED",
    "OPTION_INVALID",
    "OPTION_MISSING",
    "OPTIONS_EXCLUDE",
)
def sink_fits(known: Known) -> Iterator[Finding]:
    """Each sink exists, takes the table's mode, and gets options that it knows."""
    for table in known.pipeline.tables:
        for spec in table.sinks:
            yield from _sink_fits(known, table, spec)


def _sink_fits(known: Known, table: Table, spec: SinkSpec) -> Iterator[Finding]:
    place = spec.location or table.location
    sink = known.sink(spec)
    if sink is None:
        yield Finding(
            "FORMAT_UNKNOWN",
            f'table "{table.name}" has sink format "{spec.format}", which is no sink',
            place,
            hint=did_you_mean(spec.format, known.sinks)
            or f"one of {', '.join(sorted(known.sinks))}",
        )
        return
    what = f'sink "{spec.format}" of table "{table.name}"'
    if table.output_mode not in sink.modes:
        takers = [f for f, s in known.sinks.items() if table.output_mode in s.modes]
        yield Finding(
            "SINK_MODE",
            f"{what} does not take {table.output_mode} mode",
            place,
            detail=f"it takes {' and '.join(sink.modes)}",
            hint=f"{table.output_mode} mode goes into {', '.join(sorted(takers))}",
        )
    yield from options(what, sink, spec, sink.options)
    yield from one_of(what, sink, spec)


@says("KEY_MISSING", "KEY_UNUSED", "SINK_ALONE", "SINK_PARTITIONS", "SINK_TWICE")
def sinks_together(known: Known) -> Iterator[Finding]:
    """Several sinks of one table are several targets; keys are for those that replace rows."""
    for table in known.pipeline.tables:
        sinks = [(spec, known.sink(spec)) for spec in table.sinks]
        targets: set[tuple[str, str]] = set()
        if not table.sinks:
            yield Finding(
                "KEY_MISSING", f'table "{table.name}" has an empty list of sinks', table.location,
                hint="leave `sink` out for an embedded table",
            )  # fmt: skip
        for spec, sink in sinks:
            place = spec.location or table.location
            if sink and sink.alone and len(sinks) > 1:
                yield Finding(
                    "SINK_ALONE",
                    f'sink "{spec.format}" of table "{table.name}" cannot be one of several',
                    place,
                )
            target = (spec.format, str(sorted(spec.options.items())))
            if target in targets:
                yield Finding(
                    "SINK_TWICE", f'table "{table.name}" has sink "{spec.format}" twice', place
                )
            targets.add(target)
        if not table.sinks or not all(sink for _, sink in sinks):
            continue
        if table.partition_by and not any(sink and sink.partitions for _, sink in sinks):
            yield Finding(
                "SINK_PARTITIONS",
                f'table "{table.name}" has partition_by, but sink "{table.sinks[0].format}" '
                "keeps none",
                table.sinks[0].location or table.location,
            )
        if table.key and not any(sink and (sink.keyed or sink.takes_key) for _, sink in sinks):
            yield Finding(
                "KEY_UNUSED",
                f'table "{table.name}" has a key, but sink "{table.sinks[0].format}" replaces '
                "no rows",
                table.sinks[0].location or table.location,
                hint="a key is for update mode into a sink that keeps one row a key",
            )


@says("SINK_DELIVERY")
def delivery_fits(known: Known) -> Iterator[Finding]:
    """`delivery` is for sinks that have two; `ledger` for targets that have none of their own."""
    for table in known.pipeline.tables:
        for spec in table.sinks:
            record = known.sinks.get(spec.format)
            place = spec.location or table.location
            what = f'sink "{spec.format}" of table "{table.name}"'
            if record and spec.delivery and record.exactly_once is None:
                yield Finding(
                    "SINK_DELIVERY",
                    f"{what} has one way to deliver: {record.guarantee}",
                    place,
                    hint="leave `delivery` out; kafka takes delivery: exactly_once",
                )
            if spec.ledger and spec.format != "python":
                yield Finding(
                    "SINK_DELIVERY",
                    f"{what} has no use for a ledger",
                    place,
                    detail="`ledger: embedded` is for functions and classes of yours, whose "
                    "target keeps none",
                    hint="leave `ledger` out",
                )


@says("KEY_UNUSED")
def versions_fit(known: Known) -> Iterator[Finding]:
    """Which of two rows with one key stays is a question of update mode, into sinks with keys."""
    for table in known.pipeline.tables:
        given = [key for key in ("order_by", "delete_when") if getattr(table, key)]
        keyed = [spec for spec in table.sinks if (s := known.sink(spec)) and s.keyed]
        others = [spec for spec in table.sinks if spec not in keyed]
        if not given or not all(known.sink(spec) for spec in table.sinks):
            continue
        if table.output_mode != "update" or others:
            why = (
                f"is in {table.output_mode} mode"
                if table.output_mode != "update"
                else f'has sink "{others[0].format}", which replaces no rows'
            )
            takers = sorted(f for f, s in known.sinks.items() if s.keyed)
            yield Finding(
                "KEY_UNUSED",
                f'table "{table.name}" has {given[0]}, but {why}',
                table.location,
                hint=f"{given[0]} is for output_mode: update into {' or '.join(takers)}",
            )


@says("KEY_UNUSED")
def upkeep_fits(known: Known) -> Iterator[Finding]:
    """Removing old rows and adding columns is work that a sink can do, or cannot."""
    for table in known.pipeline.tables:
        asked = {
            "retain": ("retains", table.retain is not None),
            "on_schema_change": ("adds_columns", table.on_schema_change == "add_columns"),
        }
        for key, (ability, given) in asked.items():
            sinks = [s for spec in table.sinks if (s := known.sink(spec))]
            if given and sinks and not any(getattr(s, ability) for s in sinks):
                able = sorted(f for f, s in known.sinks.items() if getattr(s, ability))
                yield Finding(
                    "KEY_UNUSED",
                    f'table "{table.name}" has {key}, which sink "{table.sinks[0].format}" '
                    "cannot do",
                    table.location,
                    hint=f"{' and '.join(able)} can",
                )


@says("OPTION_MISSING")
def ledger_has_a_place(known: Known) -> Iterator[Finding]:
    """In Kafka the ledger is an offset of a topic, which has to be named."""
    for table in known.pipeline.tables:
        for spec in table.sinks:
            given = {option.lower() for option in (*spec.options, *spec.unchecked_options)}
            if (
                spec.format == "kafka"
                and spec.delivery == "exactly_once"
                and not given & {"topic", "ledger_topic"}
            ):
                yield Finding(
                    "OPTION_MISSING",
                    f'sink "kafka" of table "{table.name}" names neither topic nor ledger_topic',
                    place_of(spec, "topic") or table.location,
                    detail="which batches were delivered is kept as an offset on partition 0 of a "
                    "topic",
                    hint="ledger_topic: one of the topics that the rows go to",
                )


SINK_RULES: tuple[Rule, ...] = (
    sink_fits,
    sinks_together,
    delivery_fits,
    versions_fit,
    upkeep_fits,
    ledger_has_a_place,
)
