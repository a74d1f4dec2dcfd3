"""Rules about what a table is besides its state: its rows, mode, streams, sinks and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evertable.check.pages import says
from evertable.model.shape import Term
from evertable.plan.changes import Change, Verdict
from evertable.plan.edit import Edit, masked, matched, readable, shown
from evertable.plan.manifest import Source, Target

# Confs that a checkpoint does not pin, and by which a query may compute something else.
UNPINNED = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
)
_CODE = "code of yours"


@says("MODE_CHANGED")
def mode_changed(edit: Edit) -> Iterator[Change]:
    """The table has another output mode.

    Append gives a group once, when it is final; update gives it whenever it changes; complete
    gives all of them. Update and complete may follow each other as long as nothing is forgotten.
    From append to update the groups that are open and never change again never come out; from
    update to append those that came out come out again; what a watermark has removed from the
    state is missing in a complete result.

    What to do: `rebuild`, or a table `beside`.
    """
    old, new = edit.old.mode, edit.new.mode
    if old == new:
        return
    if not edit.kept_state:
        yield Change("MODE_CHANGED", "safe", "the output mode is another one", old, new)
        return
    forgets = any(
        branch.marks for o in (edit.old.shape.operators if edit.old.shape else ())
        for side in o.sides for branch in side
    )  # fmt: skip
    if edit.restart.error:
        verdict: Verdict = "fails"
        detail = "Spark refuses it"
    elif new == "complete" and old == "update" and not forgets:
        verdict, detail = "safe", "the state has every group, and all of them come out"
    elif new == "complete":
        verdict = "corrupts" if forgets else "safe"
        detail = "groups that the watermark has removed are missing in the complete result"
    elif old == "complete" and new == "update":
        verdict, detail = "note", "groups come out when they change"
    elif old == "append" and new == "update":
        verdict = "corrupts"
        detail = "groups that are open now and never change again would never come out"
    else:
        verdict, detail = "mixed", "groups that have come out come out again when they are final"
    yield Change(
        "MODE_CHANGED", verdict, "the output mode is another one", old, new, detail,
        edit.restart.error,
    )  # fmt: skip


@says("RESULT_CHANGED")
def result_changed(edit: Edit) -> Iterator[Change]:
    """Rows are made in another way, above all state: the rows from now on are the new ones.

    Nothing that is kept depends on it. Rows that are there already stay as they are.
    """
    if edit.old.shape is None or edit.new.shape is None:
        return
    for old, new in matched(edit.old.shape.result, edit.new.shape.result):
        if old is None or new is None:
            if old is None and new is not None:
                reads = set(new.reads)
                again = reads - edit.added()
                yield Change(
                    "RESULT_CHANGED", "safe" if not again else "note",
                    "rows come in one more way", "", ", ".join(new.reads),
                    "from now on" if again else "from the beginning of what it reads",
                )  # fmt: skip
            elif old is not None:
                yield Change(
                    "RESULT_CHANGED", "safe", "rows come in one way less", ", ".join(old.reads),
                )  # fmt: skip
            continue
        if old.reads != new.reads:
            yield _reads_something_else(edit, old.reads, new.reads)
            continue
        by_name = {t.name: t for t in old.values}
        changed = [
            t for t in new.values if t.name in by_name and by_name[t.name].text != t.text
        ]
        others = old.filters != new.filters or old.shape != new.shape
        if not changed and not others:
            continue
        code = all(masked(by_name[t.name].text) == masked(t.text) for t in changed) and [
            *map(masked, (*old.filters, old.shape))
        ] == [*map(masked, (*new.filters, new.shape))]
        before = ", ".join(shown(by_name[t.name]) for t in changed)
        after = ", ".join(map(shown, changed))
        if others and not changed:
            before = " AND ".join(map(readable, old.filters)) or "every row"
            after = " AND ".join(map(readable, new.filters)) or "every row"
        keyed = edit.new.mode == "update" and edit.kept_state
        yield Change(
            "RESULT_CHANGED", "note" if keyed else "safe",
            f"{_CODE} makes other rows" if code else "rows are made in another way",
            before, after,
            f"rows from batch {edit.standing.next_batch} on are the new ones"
            + ("; a key that does not change any more keeps its old row" if keyed else ""),
        )  # fmt: skip


def _reads_something_else(edit: Edit, old: tuple[str, ...], new: tuple[str, ...]) -> Change:
    known = set(old) | set(new)
    news = set(new) - set(old)
    if edit.standing.named and news and news <= edit.added():
        return Change(
            "RESULT_CHANGED", "safe", "rows come from another stream", ", ".join(old),
            ", ".join(new), "from its beginning; rows of the old one stay",
        )  # fmt: skip
    offsets = {edit.standing.offsets.get(use) for use in known}
    even = len(offsets) == 1 and None not in offsets
    return Change(
        "RESULT_CHANGED", "safe" if even and not edit.kept_state else "corrupts",
        "uses of a stream change places", ", ".join(old), ", ".join(new),
        "they stand at the same place" if even
        else "each would go on where the other one stands: rows read twice, or never",
    )  # fmt: skip


@says("COLUMNS_CHANGED")
def columns_changed(edit: Edit) -> Iterator[Change]:
    """The result has other columns than the rows that are there.

    Files and topics take them as they come. A relational table takes a new column where
    `on_schema_change: add_columns` says so, as embedded tables do by themselves; their older rows
    have NULL there. Nothing makes a column of one type one of another.

    What to do: take the edit back, `on_schema_change: add_columns`, or `start_over` into another
    table.
    """
    if edit.old.shape is None or edit.new.shape is None:
        return
    before = {t.name: t.type for t in edit.old.columns}
    after = {t.name: t.type for t in edit.new.columns}
    if list(before.items()) == list(after.items()):
        return
    if before == after:
        yield Change(
            "COLUMNS_CHANGED", "safe", "columns change places", ", ".join(before), ", ".join(after)
        )
        return
    gone = [n for n in before if n not in after]
    new = [n for n in after if n not in before]
    other = [n for n in after if n in before and before[n] != after[n]]
    said = _columns_said(gone, new, other, before, after)
    verdict: Verdict = "safe" if new and not gone and not other else "note"
    detail = f"from batch {edit.standing.next_batch} on; older rows stay as they are"
    for target in edit.new.targets:
        if target.keyed and not target.adds_columns:
            verdict, detail = "fails", f"sink {target.format} keeps the columns that it has"
        elif target.keyed and other:
            verdict, detail = "fails", "a column that is kept cannot become one of another type"
        elif target.keyed and verdict == "safe":
            detail = f"from batch {edit.standing.next_batch} on; older rows have NULL there"
    yield Change("COLUMNS_CHANGED", verdict, said, ", ".join(before), ", ".join(after), detail)


def _columns_said(
    gone: list[str], new: list[str], other: list[str], before: Mapping[str, str],
    after: Mapping[str, str],
) -> str:  # fmt: skip
    parts = []
    if new:
        parts.append(f"{_named(new)} {'is' if len(new) == 1 else 'are'} added")
    if gone:
        parts.append(f"{_named(gone)} {'is' if len(gone) == 1 else 'are'} gone")
    parts += [f'"{n}" was {before[n]} and is {after[n]}' for n in other]
    return "; ".join(parts)


def _named(names: list[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(f'"{n}"' for n in names)


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
    if [_what(s) for s in olds] != [_what(s) for s in news] and sorted(
        map(_what, olds)
    ) == sorted(map(_what, news)):
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
    for option in sorted(old.options.keys() | new.options.keys()):
        before, after = old.options.get(option, ""), new.options.get(option, "")
        if before == after:
            continue
        starts = option.lower().startswith("starting")
        yield Change(
            "STREAM_OPTIONS_CHANGED", "note" if starts else "safe",
            f"{option} of {name} is another one", before, after,
            "it has no effect any more: the checkpoint knows where to go on" if starts else "",
        )  # fmt: skip


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


@says("TABLE_KEY_CHANGED", "TABLE_CHANGED")
def table_changed(edit: Edit) -> Iterator[Change]:
    """Another key of the table: what a row is replaced by, which of two versions stays, when rows
    are removed, where its files are put.

    Rows that are there were kept by the old ones.
    """
    if set(edit.old.key) != set(edit.new.key) and edit.old.mode == edit.new.mode:
        keyed = any(t.keyed for t in edit.new.targets)
        yield Change(
            "TABLE_KEY_CHANGED", "fails" if keyed else "note", "rows are replaced by another key",
            ", ".join(edit.old.key), ", ".join(edit.new.key),
            "rows that are there are kept by the old key" if keyed else "",
        )  # fmt: skip
    harmful: dict[str, Verdict] = {
        "order_by": "mixed", "delete_when": "mixed", "partition_by": "mixed",
    }  # fmt: skip
    before, after = dict(edit.old.settings), dict(edit.new.settings)
    for name in sorted((before.keys() | after.keys()) - {"texts"}):
        if before.get(name) != after.get(name):
            yield Change(
                "TABLE_CHANGED", harmful.get(name, "safe"), f"{name} is another one",
                before.get(name, ""), after.get(name, ""),
                "rows that are there were kept by the old one" if name in harmful else "",
            )  # fmt: skip


@says("TRIGGER_CHANGED")
def trigger_changed(edit: Edit) -> Iterator[Change]:
    """The table has another trigger. Batches are cut in another way; the rows are the same."""
    if edit.old.trigger == edit.new.trigger:
        return
    kinds = {edit.old.trigger.split()[0], edit.new.trigger.split()[0]}
    yield Change(
        "TRIGGER_CHANGED", "note" if "continuous" in kinds else "safe",
        "it has another trigger", edit.old.trigger, edit.new.trigger,
    )  # fmt: skip


@says("CONF_CHANGED", "CONF_PINNED", "SECRET_CHANGED", "VERSION_CHANGED")
def confs_changed(edit: Edit) -> Iterator[Change]:
    """A Spark conf, a secret's value, or a version is another one.

    Where an expression of the query depends on the time zone, that is said by the rule about what
    it is a part of. Confs that a checkpoint has pinned stay as they are, whatever is set now.
    """
    before, after = dict(edit.old.confs), dict(edit.new.confs)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        pinned = name in edit.standing.confs
        yield Change(
            "CONF_PINNED" if pinned else "CONF_CHANGED", "note",
            f"{name} is another one", before.get(name, "not set"), after.get(name, "not set"),
            f"without effect: the checkpoint has pinned {edit.standing.confs[name]}" if pinned
            else "nothing that is kept depends on it",
        )  # fmt: skip
    for name in sorted(edit.old.secrets.keys() & edit.new.secrets.keys()):
        if edit.old.secrets[name] != edit.new.secrets[name]:
            yield Change(
                "SECRET_CHANGED", "note", f"${{secret:{name}}} has another value", "", "",
                "if it names another server or database, what is there is not what was",
            )  # fmt: skip
    for name in ("spark",):
        if edit.old.versions.get(name) != edit.new.versions.get(name):
            yield Change(
                "VERSION_CHANGED", "note", f"{name} has another version",
                edit.old.versions.get(name, "?"), edit.new.versions.get(name, "?"),
            )  # fmt: skip


@says("RESTART_REFUSED")
def restart_refused(edit: Edit) -> Iterator[Change]:
    """Spark's own checks refuse the checkpoint for this query.

    They were asked with a copy of the checkpoint's metadata; nothing was started or changed.

    What to do: `rebuild`, `start_over`, or a table `beside`.
    """
    if edit.restart.error:
        yield Change(
            "RESTART_REFUSED", "fails", "Spark refuses to start on its checkpoint", "", "",
            "asked with a copy of the checkpoint's metadata", edit.restart.error,
        )  # fmt: skip


@says("PLAN_NOT_COMPARED")
def cannot_tell(edit: Edit) -> Iterator[Change]:
    """What the query computes could not be compared with what it computed.

    Spark's planner could not be asked, now or then. Its own checks were, and what stands in the
    file was compared.
    """
    if edit.old.shape is None or edit.new.shape is None:
        yield Change(
            "PLAN_NOT_COMPARED", "note", "what the query computes cannot be compared", "", "",
            edit.old.unknown or edit.new.unknown or "there is no manifest of it",
        )  # fmt: skip


RULES = (
    mode_changed,
    result_changed,
    columns_changed,
    streams_changed,
    statics_changed,
    sinks_changed,
    table_changed,
    trigger_changed,
    confs_changed,
    cannot_tell,
)
LAST = (restart_refused,)  # said where no other rule knows why
_ = Term
