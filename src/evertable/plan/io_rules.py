"""Rules about where a table's rows come from and where they go."""

from __future__ import annotations

from collections.abc import Iterator

from evertable.check.pages import says
from evertable.plan.changes import Change
from evertable.plan.edit import Edit
from evertable.plan.manifest import Source, Target


@says("STREAM_ADDED", "STREAM_REMOVED", "STREAM_CHANGED", "STREAM_OPTIONS_CHANGED")
def streams_changed(edit: Edit) -> Iterator[Change]:
    """A table reads other streams, or a stream reads something else.

    Each use of a stream has a name in the checkpoint, so that one more, one less or another order
    keeps it valid. Where sources have no names Spark knows them by their place only. A stream that
    reads another folder or topic under its old name goes on with the offsets of the old one.

    What to do: give what is read now a name of its own (a new stream beside the old one).
    """
    before = {s.use: s for s in edit.old.sources}
    after = {s.use: s for s in edit.new.sources}
    if edit.standing.named is False or not edit.old.named:
        yield from _by_place(edit)
        return
    for use in after.keys() - before.keys():
        source = after[use]
        yield Change(
            "STREAM_ADDED", "safe", f'stream "{source.stream}" is read, too', "", use,
            f"it begins {_beginning(source)}",
        )  # fmt: skip
    for use in before.keys() - after.keys():
        yield Change(
            "STREAM_REMOVED", "safe", f'stream "{before[use].stream}" is read no more', use, "",
            "where it stood is forgotten",
        )  # fmt: skip
    for use in sorted(before.keys() & after.keys()):
        yield from _one_stream(edit, before[use], after[use])


def _by_place(edit: Edit) -> Iterator[Change]:
    """Sources without names, as Spark knows them: by their order."""
    olds, news = edit.old.sources, edit.new.sources
    if len(olds) != len(news):
        yield Change(
            "STREAM_ADDED" if len(news) > len(olds) else "STREAM_REMOVED", "fails",
            "its sources have no names, and there is another number of them",
            ", ".join(s.stream for s in olds), ", ".join(s.stream for s in news),
            f"the checkpoint has offsets of {len(olds)} sources, the query has {len(news)}",
        )  # fmt: skip
        return
    if [_what(s) for s in olds] != [_what(s) for s in news] and sorted(map(_what, olds)) == sorted(
        map(_what, news)
    ):
        yield Change(
            "STREAM_CHANGED", "corrupts", "sources without names change places",
            ", ".join(s.stream for s in olds), ", ".join(s.stream for s in news),
            "each would go on where the other one stands: rows read twice, or never",
        )  # fmt: skip
        return
    for old, new in zip(olds, news, strict=True):
        yield from _one_stream(edit, old, new)


def _what(source: Source) -> str:
    return f"{source.format} {sorted(source.identity.items())} {source.schema}"


def _one_stream(edit: Edit, old: Source, new: Source) -> Iterator[Change]:
    name = f'stream "{new.stream}"'
    if old.format != new.format:
        yield Change(
            "STREAM_CHANGED", "fails", f"{name} has another format", old.format, new.format,
            "the offsets of the one cannot be read by the other"
            if not _both_files(old, new) else "files that were read are not read again",
        )  # fmt: skip
        return
    if dict(old.identity) != dict(new.identity):
        yield _another_source(edit, name, old, new)
    if old.format == "csv" and not _same_places(old.schema, new.schema):
        yield Change(
            "STREAM_CHANGED", "corrupts" if edit.kept_state else "safe",
            f"{name} has other columns at the same places", old.schema, new.schema,
            "columns of csv are found by their places: what is kept was made of others"
            if edit.kept_state else "",
        )  # fmt: skip
    for option in sorted(old.options.keys() | new.options.keys()):
        before, after = old.options.get(option, ""), new.options.get(option, "")
        if before == after:
            continue
        starts = option.lower().startswith("starting")
        if not starts and not _is_tuning(option) and edit.kept_state:
            yield Change(
                "STREAM_OPTIONS_CHANGED", "mixed", f"{option} of {name} is another one", before,
                after, "records are read in another way; what is kept was made of the old ones",
            )  # fmt: skip
            continue
        yield Change(
            "STREAM_OPTIONS_CHANGED", "note" if starts else "safe",
            f"{option} of {name} is another one", before, after,
            "it has no effect any more: the checkpoint knows where to go on" if starts else "",
        )  # fmt: skip


# Options that say how much is read at a time, where from, or when; not what a record becomes.
_TUNING = frozenset({
    "maxfilespertrigger", "maxbytespertrigger", "maxcachedfiles", "discardcachedinputratio",
    "latestfirst", "maxfileage", "cleansource", "sourcearchivedir",
    "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay",
    "maxrecordsperpartition", "minpartitions", "failondataloss", "groupidprefix",
    "fetchoffset.numretries", "fetchoffset.retryintervalms", "includeheaders", "rowspersecond",
    "rowsperbatch", "numpartitions", "rampuptime", "advancemillisperbatch", "starttimestamp",
    "includetimestamp", "kafkaconsumer.polltimeoutms", "columnnameofcorruptrecord",
})  # fmt: skip


def _is_tuning(option: str) -> bool:
    name = option.lower()
    return name in _TUNING or (name.startswith("kafka.") and name != "kafka.isolation.level")


def _columns(ddl: str) -> list[str]:
    """The columns of a DDL text, each in one form."""
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(ddl):
        depth += (sign in "(<") - (sign in ")>")
        if sign == "," and not depth:
            parts.append(ddl[begin:at])
            begin = at + 1
    return [" ".join(part.lower().replace(":", " ").split()) for part in [*parts, ddl[begin:]]]


def _same_places(before: str, after: str) -> bool:
    """Whether columns stand where they stood; more or fewer at the end do not matter."""
    if not before or not after:
        return before == after
    olds, news = _columns(before), _columns(after)
    return all(old == new for old, new in zip(olds, news, strict=False))


def _both_files(old: Source, new: Source) -> bool:
    return "path" in old.identity and "path" in new.identity


def _another_source(edit: Edit, name: str, old: Source, new: Source) -> Change:
    before, after = _identity(old), _identity(new)
    if new.format == "kafka":
        topics = [
            set(filter(None, one.identity.get("subscribe", "").replace(" ", "").split(",")))
            for one in (old, new)
        ]
        if topics[0] and topics[0] <= topics[1]:
            return Change(
                "STREAM_CHANGED", "note", f"{name} reads more topics", before, after,
                "new ones are read from their beginning",
            )  # fmt: skip
        return Change(
            "STREAM_CHANGED", "fails", f"{name} reads other topics", before, after,
            "the checkpoint has offsets of topics that are not read any more",
        )  # fmt: skip
    if "path" in new.identity and old.use in edit.standing.moved:
        return Change(
            "STREAM_CHANGED", "fails", f"{name} reads another folder", before, after,
            "the checkpoint names files that are not in it",
        )  # fmt: skip
    return Change(
        "STREAM_CHANGED", "corrupts" if edit.kept_state else "mixed",
        f"{name} reads something else", before, after,
        "what is there was made of other rows; offsets of the old one are applied to the new one",
    )  # fmt: skip


def _identity(source: Source) -> str:
    return ", ".join(f"{k}={v}" for k, v in sorted(source.identity.items()))


def _beginning(source: Source) -> str:
    told = {k.lower(): v for k, v in source.options.items()}
    start = told.get("startingoffsets") or ("latest" if source.format == "kafka" else "")
    if start:
        return f"at {start}"
    return "at its beginning" if source.replays else "with the rows that come from now on"


@says("STATIC_CHANGED")
def statics_changed(edit: Edit) -> Iterator[Change]:
    """A static table is read from elsewhere, or in another way.

    Rows from now on are joined with the new one. What state has kept was joined with the old one,
    as it is when the static's own content changes.
    """
    before = {s.stream: s for s in edit.old.statics}
    after = {s.stream: s for s in edit.new.statics}
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        if old == new:
            continue
        yield Change(
            "STATIC_CHANGED", "mixed" if edit.kept_state and edit.keeps_state else "safe",
            f'static "{name}" is another one',
            f"{old.format} {_identity(old)}", f"{new.format} {_identity(new)}",
            "what is kept was joined with the old one" if edit.kept_state
            else "rows from now on are joined with the new one",
        )  # fmt: skip


@says("SINK_CHANGED", "SINK_CODE_CHANGED", "SINK_OPTIONS_CHANGED")
def sinks_changed(edit: Edit) -> Iterator[Change]:
    """A table's rows go somewhere else.

    The new place has none of the batches that the checkpoint counts as done. A folder that begins
    in the middle cannot be read by Spark at all; any other target would begin in the middle, in
    silence, and is refused.

    What to do: `start_over` or `rebuild` to fill the new place; or copy the rows and the ledger
    there first.
    """
    olds, news = list(edit.old.targets), list(edit.new.targets)
    for new in list(news):
        same = next(
            (o for o in olds if o.format == new.format and dict(o.identity) == dict(new.identity)),
            None,
        )
        if same is not None:
            olds.remove(same)
            news.remove(new)
            yield from _one_sink(same, new)
    began = edit.standing.last_commit >= 0
    for new in news:
        old = olds.pop(0) if olds else None
        before, after = (_target(old) if old else ""), _target(new)
        if not new.ledger or not began:
            yield Change(
                "SINK_CHANGED", "note", "rows go to another sink", before, after,
                f"from batch {edit.standing.next_batch} on; earlier rows stay where they are",
            )  # fmt: skip
        else:
            yield Change(
                "SINK_CHANGED", "corrupts" if new.files else "fails",
                "rows go to another place", before, after,
                "Spark's log of batches would begin in the middle, and the folder could not be "
                "read" if new.files else "it has none of the batches that are done",
            )  # fmt: skip
    for old in olds:
        yield Change("SINK_CHANGED", "safe", "rows go to one sink less", _target(old))


def _one_sink(old: Target, new: Target) -> Iterator[Change]:
    if old.code != new.code:
        yield Change(
            "SINK_CODE_CHANGED", "safe", "code of yours that takes the rows is another one",
            detail="it gets the batches from now on",
        )  # fmt: skip
    if old.delivery != new.delivery:
        yield Change(
            "SINK_CHANGED", "fails" if new.ledger and not old.ledger else "note",
            "rows are delivered in another way", old.delivery or "as the sink does",
            new.delivery or "as the sink does",
            "its ledger has none of the batches that are done" if new.ledger and not old.ledger
            else "",
        )  # fmt: skip
    for option in sorted(old.options.keys() | new.options.keys()):
        before, after = old.options.get(option, ""), new.options.get(option, "")
        if before != after:
            yield Change(
                "SINK_OPTIONS_CHANGED", "safe", f"{option} of the sink is another one", before,
                after,
            )  # fmt: skip


def _target(target: Target) -> str:
    return " ".join([target.format, *(f"{k}={v}" for k, v in sorted(target.identity.items()))])


RULES = (streams_changed, statics_changed, sinks_changed)
