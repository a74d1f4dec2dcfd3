"""What a kind of source or sink takes and promises; the records stand beside each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from evertable.model.names import nearest
from evertable.model.option_values import Check, boolean, whole_number

Guarantee = Literal["exactly once", "at least once", "at most once", "nothing kept", "not known"]


@dataclass(frozen=True, slots=True)
class SourceCapabilities:
    """A kind of source: which options Spark knows for it, and what it can promise."""

    formats: tuple[str, ...]
    options: frozenset[str]
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()  # exactly one of these has to be given
    values: Mapping[str, Check] = field(default_factory=dict)  # of options in small letters
    # option -> what to do instead; for options that Spark takes and then ignores or refuses
    misplaced: Mapping[str, str] = field(default_factory=dict)
    # options that only make sense for a stream, not for a static table
    streaming_only: frozenset[str] = frozenset()
    bounded_only: frozenset[str] = frozenset()  # and the other way round
    takes_schema: bool = False  # the schema may be given
    infers_schema: bool = False  # where it is not given, it is found by looking at the data
    bounded: bool = False  # may also be a static table
    replays: bool = True  # can give a past batch again, so that a crash loses nothing
    paths: tuple[str, ...] = ()  # options that are paths, relative to the pipeline's folder
    cap: tuple[str, str] | None = None  # the option, and its default, that bounds a batch
    other_caps: tuple[str, ...] = ()  # options that bound it too, and exclude the first
    continuous: bool = False  # may be read with a continuous trigger
    real_time: bool = False  # may be read with a real-time trigger
    connector: str | None = None  # whose jars it needs
    any_option: str = ""  # options without a record are let through where this one is given, or "*"


@dataclass(frozen=True, slots=True)
class SinkCapabilities:
    """A kind of sink: which modes it takes and what it promises about each batch."""

    formats: tuple[str, ...]
    modes: tuple[str, ...]
    guarantee: Guarantee
    options: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()  # exactly one of these has to be given
    values: Mapping[str, Check] = field(default_factory=dict)  # of options in small letters
    misplaced: Mapping[str, str] = field(default_factory=dict)  # option -> what to do instead
    ledger: bool = False  # which batches it has is known, so that none is written twice
    keyed: bool = False  # update mode replaces rows by key, so it needs one
    takes_key: bool = False  # is told the key where there is one, and may use it
    retains: bool = False  # removes rows that are older than `retain` says
    adds_columns: bool = False  # can do `on_schema_change: add_columns`
    exactly_once: SinkCapabilities | None = None  # what it is with `delivery: exactly_once`
    partitions: bool = False  # takes `partition_by`
    alone: bool = False  # cannot be one of several sinks of a table
    paths: tuple[str, ...] = ()
    durable: bool = True  # keeps rows after the run, so its checkpoint must be kept too
    continuous: bool = False  # takes rows of a continuous trigger
    real_time: bool = False  # takes rows of a real-time trigger
    connector: str | None = None  # whose jars it needs
    any_option: str = ""  # options without a record are let through where this one is given, or "*"

    def delivering(self, delivery: str | None) -> SinkCapabilities:
        """The record for the delivery that a sink is asked for."""
        return self.exactly_once or self if delivery == "exactly_once" else self


Record = TypeVar("Record")


class Formats(Mapping[str, Record], Generic[Record]):
    """Records by format. A format that we do not know is Spark's business, unless it looks like one
    of ours misspelt."""

    def __init__(self, known: Mapping[str, Record], stranger: Callable[[str], Record]) -> None:
        self._known = known
        self._stranger = stranger

    def __getitem__(self, format: str) -> Record:
        known = self._known.get(format)
        if known is not None:
            return known
        if nearest(format, self._known):
            raise KeyError(format)
        return self._stranger(format)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


# Options of Spark's writer for which batches wait for no log; it knows them by these sinks only.
ASYNC = {
    "asyncProgressTrackingEnabled": boolean,
    "asyncProgressTrackingCheckpointIntervalMs": whole_number,
}

MISPLACED = {
    "checkpointlocation": "the checkpoint is kept under the pipeline's `storage`, one a table",
    "querylocation": "the checkpoint is kept under the pipeline's `storage`, one a table",
}
