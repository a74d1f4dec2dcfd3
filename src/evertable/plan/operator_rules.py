"""Rules about operators that keep state: what is kept, by what, and of which rows.

Spark compares the types of what a checkpoint keeps with those of the query, by their order. Whether
they mean the same it cannot know.
"""

from __future__ import annotations

from collections.abc import Iterator

from evertable.check.pages import says
from evertable.model.shape import Branch
from evertable.plan.changes import Change, Verdict
from evertable.plan.edit import Edit, Pair, masked, readable
from evertable.plan.saying import (
    GROUPS,
    WORDS,
    about_keys_only,
    is_window,
    listed,
    refused_or,
    same_terms,
    shown_all,
    texts,
    ways_of,
    windowed,
)


@says("OPERATOR_CHANGED")
def operator_changed(edit: Edit) -> Iterator[Change]:
    """A query keeps other kinds of state than its checkpoint has, or in another order.

    Spark numbers the operators that keep state by their place in the query. State is found by
    that number: an operator that is added, removed or moved would meet the state of another one.
    Mostly Spark refuses to start; where two have the same types it does not notice.

    What to do: give the new query a table of its own (`beside`), or build the table anew
    (`rebuild`, `start_over`).
    """
    if edit.old.shape is None or edit.new.shape is None:
        return
    before = {o.id: o.kind for o in edit.old.shape.operators}
    after = {o.id: o.kind for o in edit.new.shape.operators}
    if before == after or edit.standing.last_commit < 0:
        return
    verdict: Verdict = "fails" if edit.restart.error else "corrupts"
    yield Change(
        "OPERATOR_CHANGED", verdict, "it keeps other state than its checkpoint has",
        listed(before.values()), listed(after.values()),
        "the checkpoint has no state that the new query could go on with", edit.restart.error,
    )  # fmt: skip


@says("KEY_CHANGED", "KEYS_REORDERED", "WINDOW_CHANGED")
def keys_changed(edit: Edit) -> Iterator[Change]:
    """State is kept by other keys than before.

    Spark compares the types of keys. A key that is replaced by one of the same type, or two keys
    of one type that change places, are accepted without a word, and kept groups go on under names
    that are not theirs. Windows of another length are told apart by their own start and end: open
    ones come out as they are, and the rows of the new windows begin with the restart.

    What to do: `rebuild` where all input can be read again, `start_over` where a beginning from now
    is good enough, `beside` to have both. `accept` lets open windows come out as they are.
    """
    for pair, old, new in ways_of(edit):
        if same_terms(old.keys, new.keys):
            continue
        before, after = texts(old.keys), texts(new.keys)
        if [*map(masked, before)] == [*map(masked, after)]:
            yield Change(
                "KEY_CHANGED", "mixed", "code of yours that makes a key is another one",
                shown_all(old.keys), shown_all(new.keys),
                "groups that were made by the old code stay as they are",
            )  # fmt: skip
        elif sorted(before) == sorted(after):
            yield refused_or(
                edit, "KEYS_REORDERED", "the keys change places", shown_all(old.keys),
                shown_all(new.keys),
                "Spark compares types only: what is kept would go on with its keys swapped",
            )  # fmt: skip
        elif len(before) == len(after) and all(
            a == b or (is_window(a) and is_window(b) and windowed(a) == windowed(b))
            for a, b in zip(before, after, strict=True)
        ):
            if edit.restart.error:
                yield refused_or(
                    edit, "WINDOW_CHANGED", "the windows are others", shown_all(old.keys),
                    shown_all(new.keys), "",
                )  # fmt: skip
                continue
            yield Change(
                "WINDOW_CHANGED", "mixed", "the windows are others",
                shown_all(old.keys), shown_all(new.keys),
                "windows that are open come out as they are; rows from now on go into the new ones",
            )  # fmt: skip
        else:
            same_types = [k.type for k in old.keys] == [k.type for k in new.keys]
            what = WORDS[pair.after.kind]
            yield refused_or(
                edit, "KEY_CHANGED",
                "a group key is replaced by one of the same type"
                if same_types and pair.after.kind in GROUPS
                else f"the {what} has other keys",
                shown_all(old.keys), shown_all(new.keys),
                "Spark would start and say nothing: it compares the types of keys, not what they "
                "are. What is kept would go on under keys that are not its own",
            )  # fmt: skip


@says("AGGREGATE_CHANGED", "AGGREGATES_REORDERED")
def aggregates_changed(edit: Edit) -> Iterator[Change]:
    """What is computed of each group is something else, or stands in another order.

    Spark keeps the running values of a group by their position. Two sums that change places,
    min that becomes max, a sum of another column: same types, accepted, and wrong for ever. An
    aggregate more or less is another type, and refused.

    What to do: keep the old aggregates in their order and compute from them (the order of
    columns can be changed in a query around this one); or `rebuild`.
    """
    for pair, old, new in ways_of(edit):
        if pair.after.kind not in GROUPS or same_terms(old.values, new.values):
            continue
        before, after = texts(old.values), texts(new.values)
        if [*map(masked, before)] == [*map(masked, after)]:
            yield Change(
                "AGGREGATE_CHANGED", "corrupts", "code of yours in an aggregate is another one",
                shown_all(old.values), shown_all(new.values),
                "values that were added up by the old code would be added to by the new one",
            )  # fmt: skip
        elif sorted(before) == sorted(after):
            yield refused_or(
                edit, "AGGREGATES_REORDERED", "aggregates of one type change places",
                shown_all(old.values), shown_all(new.values),
                "Spark keeps them by position: each would go on with the other's value",
            )  # fmt: skip
        else:
            yield refused_or(
                edit, "AGGREGATE_CHANGED", "other values are kept of each group",
                shown_all(old.values), shown_all(new.values),
                "what was added up until now is something else than what would be added to it",
            )  # fmt: skip


@says("COLUMNS_OF_STATE")
def columns_of_state_changed(edit: Edit) -> Iterator[Change]:
    """A join keeps rows with other columns than before.

    A join of streams keeps the rows of both sides, with the columns that are needed after it. One
    more column is another type, and refused. Another column of the same type is accepted: kept
    rows would show the old one under the new name.

    What to do: `rebuild`, `start_over`, or a table `beside`.
    """
    for pair, old, new in ways_of(edit):
        if pair.after.kind != "join" or same_terms(old.values, new.values):
            continue
        code_only = [masked(v.text) for v in old.values] == [masked(v.text) for v in new.values]
        if code_only and not edit.restart.error:
            yield Change(
                "COLUMNS_OF_STATE", "mixed", "code of yours below a join is another one",
                shown_all(old.values), shown_all(new.values),
                "rows that wait for a match were made by the old code",
            )  # fmt: skip
            continue
        yield refused_or(
            edit, "COLUMNS_OF_STATE", "rows that wait for a match have other columns",
            shown_all(old.values), shown_all(new.values),
            "kept rows would show what they have under other names",
        )  # fmt: skip


@says("FILTER_CHANGED")
def filters_changed(edit: Edit) -> Iterator[Change]:
    """Other rows than before come into an operator that keeps state.

    Groups were added up from rows that the old condition let through; from the restart on they
    would be added to by the new one: sums that are right under neither. A join or a deduplication
    mixes: rows that were kept by the old condition stay.

    What to do: filter after the aggregation where that says the same; else `rebuild`, or `beside`.
    """
    for pair, old, new in ways_of(edit):
        if old.filters == new.filters:
            continue
        before = " AND ".join(readable(f) for f in old.filters) or "every row"
        after = " AND ".join(readable(f) for f in new.filters) or "every row"
        of_keys = about_keys_only(old, new)
        adds_up = (pair.after.kind in GROUPS and new.values) or pair.after.kind == "python"
        code = [masked(f) for f in old.filters] == [masked(f) for f in new.filters]
        verdict: Verdict = "corrupts" if adds_up and not of_keys else "mixed"
        if of_keys and edit.new.mode == edit.old.mode == "update":
            verdict = "note"  # a group comes whole, or not at all
        what = WORDS[pair.after.kind]
        yield Change(
            "FILTER_CHANGED", verdict,
            f"code of yours that filters rows below the {what} is another one" if code
            else f"other rows come into the {what}",
            before, after,
            "groups keep what the old condition let through, and are added to by the new one"
            if verdict == "corrupts"
            else "what was kept by the old condition stays",
        )  # fmt: skip


@says("INPUT_CHANGED", "STREAM_JOINED_STATE", "STREAM_LEFT_STATE")
def input_changed(edit: Edit) -> Iterator[Change]:
    """The rows that come into an operator that keeps state are made in another way.

    Another static table, another order of steps, rows of another stream: what is kept was made of
    the old rows. A stream that is added to a union begins at its own start, so that an aggregation
    without a watermark is as if it had always been there; with one, its older rows would be late.

    What to do: `rebuild`, or a table `beside`.
    """
    added = edit.added() if edit.standing.named is not False else frozenset()
    for pair in edit.pairs():
        groups = pair.after.kind in (*GROUPS, "python")
        what = WORDS[pair.after.kind]
        if len(pair.before.sides) != len(pair.after.sides):
            yield refused_or(edit, "INPUT_CHANGED", f"the {what} has other inputs", "", "", "")
        for old, new in pair.branches():
            if old is None and new is not None:
                yield _joined(edit, pair, new, added)
            elif new is None and old is not None:
                yield Change(
                    "STREAM_LEFT_STATE", "corrupts" if groups else "mixed",
                    f"rows of {', '.join(old.reads)} come into the {what} no more",
                    ", ".join(old.reads), "",
                    "what came from them until now stays in what is kept",
                )  # fmt: skip
            elif old is not None and new is not None and old.reads != new.reads:
                yield refused_or(
                    edit, "INPUT_CHANGED", f"the {what} reads something else",
                    ", ".join(old.reads), ", ".join(new.reads),
                    "what is kept was made of other rows",
                )  # fmt: skip
            elif old is not None and new is not None and old.shape != new.shape:
                code = masked(old.shape) == masked(new.shape)
                verdict: Verdict = "corrupts" if groups and not code else "mixed"
                yield Change(
                    "INPUT_CHANGED", verdict,
                    f"rows are made in another way before they come into the {what}",
                    readable(old.shape), readable(new.shape),
                    "what is kept was made of rows as they were before",
                )  # fmt: skip


def _joined(edit: Edit, pair: Pair, new: Branch, added: frozenset[str]) -> Change:
    what = WORDS[pair.after.kind]
    news = [read for read in new.reads if read in added]
    begins = {s.use: s for s in edit.new.sources}
    latest = [
        use for use in news
        if any("latest" in v.lower() for k, v in begins[use].options.items()
               if k.lower().startswith("starting"))
        or (begins[use].format == "kafka" and not any(
            k.lower().startswith("starting") for k in begins[use].options))
    ]  # fmt: skip
    if set(news) != set(new.reads):
        return Change(
            "STREAM_JOINED_STATE", "corrupts", f"rows come into the {what} a second way", "",
            ", ".join(new.reads), "what was kept until now has them one way only",
        )  # fmt: skip
    if new.marks or any(b.marks for side in pair.before.sides for b in side):
        return Change(
            "STREAM_JOINED_STATE", "mixed", f"a stream comes into the {what}",
            "", ", ".join(news),
            "its rows that are older than the watermark of now are late, and dropped",
        )  # fmt: skip
    return Change(
        "STREAM_JOINED_STATE", "note", f"a stream comes into the {what}", "", ", ".join(news),
        "it begins with the rows that come from now on" if latest
        else "it is read from its beginning",
    )  # fmt: skip


RULES = (
    operator_changed,
    keys_changed,
    aggregates_changed,
    columns_of_state_changed,
    filters_changed,
    input_changed,
)
