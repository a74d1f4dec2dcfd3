"""Options of one source or sink, held against its record."""

from __future__ import annotations

from collections.abc import Iterator

from evertable.errors import Finding
from evertable.model.capabilities import SinkCapabilities, SourceCapabilities
from evertable.model.names import did_you_mean
from evertable.model.pipeline import SinkSpec, Static, Stream, place_of


def options(
    what: str,
    record: SourceCapabilities | SinkCapabilities,
    entry: Stream | Static | SinkSpec,
    allowed: frozenset[str],
) -> Iterator[Finding]:
    by_lower = {option.lower() for option in allowed}
    of_sink = isinstance(entry, SinkSpec)  # whose options stand beside its format
    given = {option.lower() for option in (*entry.options, *entry.unchecked_options)}
    for option, value in entry.options.items():
        place = place_of(entry, option)
        takes = record.values.get(option.lower())
        problem = takes(value) if takes and "${secret:" not in value else None
        if problem:
            yield Finding(
                "OPTION_INVALID", f'option "{option}" of {what} {problem}: "{value}"', place
            )
        if option.lower() in record.misplaced:
            yield Finding(
                "OPTION_MISPLACED",
                f'{what} has option "{option}"',
                place,
                hint=record.misplaced[option.lower()],
            )
        elif option.lower() not in by_lower and not (
            record.any_option == "*" or record.any_option in given
        ):
            yield Finding(
                "OPTION_UNKNOWN",
                f'{what} has no option "{option}"',
                place,
                detail="Spark would take it without a word and ignore it",
                hint=did_you_mean(option, allowed | ({"format"} if of_sink else frozenset()))
                or "put it under `unchecked_options:` if you know better",
            )
    for option in record.required:
        if option.lower() not in given:
            yield Finding("OPTION_MISSING", f'{what} needs option "{option}"', entry.location)


def one_of(
    what: str,
    record: SourceCapabilities | SinkCapabilities,
    entry: Stream | Static | SinkSpec,
) -> Iterator[Finding]:
    choices = {option.lower() for option in record.one_of}
    given = [o for o in (*entry.options, *entry.unchecked_options) if o.lower() in choices]
    if choices and len(given) != 1:
        verb = "writes to" if isinstance(entry, SinkSpec) else "reads"
        yield Finding(
            "OPTIONS_EXCLUDE" if given else "OPTION_MISSING",
            f"{what} has {' and '.join(given)}" if given else f"{what} does not say what it {verb}",
            entry.location,
            hint=f"exactly one of {', '.join(record.one_of)}",
        )
