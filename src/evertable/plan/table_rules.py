"""Rules about what a table is besides its state: its rows, mode and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evertable.check.pages import says
from evertable.plan.changes import Change, Verdict
from evertable.plan.edit import Edit, masked, matched, readable, shown

# Confs that a checkpoint does not pin, and by which a query may compute something else.
UNPINNED = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
)
_CODE = "code of yours"
_UNREAD = "text of the query"  # a digest, where nobody could read what is computed


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
        changed = [t for t in new.values if t.name in by_name and by_name[t.name].text != t.text]
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
    for name in sorted((before.keys() | after.keys()) - {"texts", _UNREAD}):
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
        texts = [dict(m.settings).get(_UNREAD) for m in (edit.old, edit.new)]
        edited = texts[0] != texts[1] and edit.standing.keeps_state
        yield Change(
            "PLAN_NOT_COMPARED", "mixed" if edited else "note",
            "what the query computes cannot be compared", "", "",
            edit.old.unknown or edit.new.unknown or "there is no manifest of it",
        )  # fmt: skip


RULES = (
    mode_changed,
    result_changed,
    columns_changed,
    table_changed,
    trigger_changed,
    confs_changed,
    cannot_tell,
)
LAST = (restart_refused,)  # said where no other rule knows why
