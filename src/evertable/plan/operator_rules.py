"""Rules about operators that keep state: what is kept, by what, and of which rows.

Spark compares the types of what a checkpoint keeps with those of the query, by their order. Whether
they mean the same it cannot know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from evertable.check.pages import says
from evertable.model.shape import Branch, Operator, Term
from evertable.plan.changes import Change, Verdict
from evertable.plan.edit import Edit, Pair, masked, readable, shown

_WORDS = {
    "aggregate": "aggregation", "session": "session window", "dedup": "deduplication",
    "dedup within watermark": "deduplication", "join": "join of streams", "limit": "limit",
    "python": "state of your code",
}  # fmt: skip
_GROUPS = ("aggregate", "session")


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
    if before == after or not edit.standing.keeps_state and not before:
        if before == after or edit.standing.last_commit < 0:
            return
    verdict: Verdict = "fails" if edit.restart.error else "corrupts"
    yield Change(
        "OPERATOR_CHANGED", verdict, "it keeps other state than its checkpoint has",
        _listed(before.values()), _listed(after.values()),
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
    for pair, old, new in _ways(edit):
        if _same(old.keys, new.keys):
            continue
        before, after = _texts(old.keys), _texts(new.keys)
        if [*map(masked, before)] == [*map(masked, after)]:
            yield Change(
                "KEY_CHANGED", "mixed", "code of yours that makes a key is another one",
                _shown(old.keys), _shown(new.keys),
                "groups that were made by the old code stay as they are",
            )  # fmt: skip
        elif sorted(before) == sorted(after):
            yield _bad(
                edit, "KEYS_REORDERED", "the keys change places", _shown(old.keys),
                _shown(new.keys),
                "Spark compares types only: what is kept would go on with its keys swapped",
            )  # fmt: skip
        elif len(before) == len(after) and all(
            a == b or (_window(a) and _window(b) and _of(a) == _of(b))
            for a, b in zip(before, after, strict=True)
        ):
            if edit.restart.error:
                yield _bad(
                    edit, "WINDOW_CHANGED", "the windows are others", _shown(old.keys),
                    _shown(new.keys), "",
                )  # fmt: skip
                continue
            yield Change(
                "WINDOW_CHANGED", "mixed", "the windows are others",
                _shown(old.keys), _shown(new.keys),
                "windows that are open come out as they are; rows from now on go into the new ones",
            )  # fmt: skip
        else:
            same_types = [k.type for k in old.keys] == [k.type for k in new.keys]
            what = _WORDS[pair.after.kind]
            yield _bad(
                edit, "KEY_CHANGED",
                "a group key is replaced by one of the same type"
                if same_types and pair.after.kind in _GROUPS
                else f"the {what} has other keys",
                _shown(old.keys), _shown(new.keys),
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
    for pair, old, new in _ways(edit):
        if pair.after.kind not in _GROUPS or _same(old.values, new.values):
            continue
        before, after = _texts(old.values), _texts(new.values)
        if [*map(masked, before)] == [*map(masked, after)]:
            yield Change(
                "AGGREGATE_CHANGED", "corrupts", "code of yours in an aggregate is another one",
                _shown(old.values), _shown(new.values),
                "values that were added up by the old code would be added to by the new one",
            )  # fmt: skip
        elif sorted(before) == sorted(after):
            yield _bad(
                edit, "AGGREGATES_REORDERED", "aggregates of one type change places",
                _shown(old.values), _shown(new.values),
                "Spark keeps them by position: each would go on with the other's value",
            )  # fmt: skip
        else:
            yield _bad(
                edit, "AGGREGATE_CHANGED", "other values are kept of each group",
                _shown(old.values), _shown(new.values),
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
    for pair, old, new in _ways(edit):
        if pair.after.kind != "join" or _same(old.values, new.values):
            continue
        code_only = [masked(v.text) for v in old.values] == [masked(v.text) for v in new.values]
        if code_only and not edit.restart.error:
            yield Change(
                "COLUMNS_OF_STATE", "mixed", "code of yours below a join is another one",
                _shown(old.values), _shown(new.values),
                "rows that wait for a match were made by the old code",
            )  # fmt: skip
            continue
        yield _bad(
            edit, "COLUMNS_OF_STATE", "rows that wait for a match have other columns",
            _shown(old.values), _shown(new.values),
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
    for pair, old, new in _ways(edit):
        if old.filters == new.filters:
            continue
        before = " AND ".join(readable(f) for f in old.filters) or "every row"
        after = " AND ".join(readable(f) for f in new.filters) or "every row"
        of_keys = _about_keys_only(old, new)
        adds_up = (pair.after.kind in _GROUPS and new.values) or pair.after.kind == "python"
        code = [masked(f) for f in old.filters] == [masked(f) for f in new.filters]
        verdict: Verdict = "corrupts" if adds_up and not of_keys else "mixed"
        if of_keys and edit.new.mode == edit.old.mode == "update":
            verdict = "note"  # a group comes whole, or not at all
        what = _WORDS[pair.after.kind]
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
        groups = pair.after.kind in (*_GROUPS, "python")
        what = _WORDS[pair.after.kind]
        if len(pair.before.sides) != len(pair.after.sides):
            yield _bad(edit, "INPUT_CHANGED", f"the {what} has other inputs", "", "", "")
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
                yield _bad(
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
    what = _WORDS[pair.after.kind]
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


@says("WATERMARK_CHANGED", "WATERMARK_GONE")
def watermarks_changed(edit: Edit) -> Iterator[Change]:
    """Something else decides what is late, and when state goes.

    Without its watermark an operator forgets nothing more, and a late row opens a group again that
    has been given out already: from zero, over its final value. With another delay some rows that
    were late are not, or the other way round; a watermark that stands in a checkpoint never goes
    back.

    What to do: a change of the delay alone is mostly harmless for what comes: `accept`. A watermark
    that is gone: `start_over` or `rebuild`.
    """
    policy = edit.old.policy != edit.new.policy
    for pair in edit.pairs():
        for old, new in pair.branches():
            if old is None or new is None or not _bounded(pair, old, new):
                continue
            what = _WORDS[pair.after.kind]
            before, after = dict(old.marks), dict(new.marks)
            if before == after:
                continue
            if before and not after:
                yield Change(
                    "WATERMARK_GONE", "corrupts", f"nothing bounds the {what} any more",
                    _marks(old), "no watermark",
                    "groups that were final would be opened again by late rows, from zero",
                )  # fmt: skip
            else:
                yield Change(
                    "WATERMARK_CHANGED", "mixed", f"the watermark of the {what} is another one",
                    _marks(old) or "no watermark", _marks(new),
                    "what was final or late by the old one stays so; the watermark of the "
                    "checkpoint never goes back",
                )  # fmt: skip
    several = len({m[0] for s in edit.old.sources for m in _all_marks(edit)}) > 1
    if policy and edit.kept_state and several:
        yield Change(
            "WATERMARK_CHANGED", "note", "another policy chooses between watermarks",
            edit.old.policy, edit.new.policy,
            "the checkpoint has pinned the old one, which stays in force",
        )  # fmt: skip


@says("JOIN_CHANGED", "LIMIT_CHANGED")
def settings_changed(edit: Edit) -> Iterator[Change]:
    """A join is of another type or has another condition; a limit is another number.

    Rows that left the state of a join before the edit are gone: they match nothing more, and are
    never padded with NULLs. A counter of rows goes on where it is.

    What to do: `accept` where the rows of the moment do not matter, else `rebuild`.
    """
    for pair in edit.pairs():
        before, after = dict(pair.before.settings), dict(pair.after.settings)
        joins = [before.get("join", ""), after.get("join", "")]
        if pair.after.kind == "limit" and before != after:
            yield Change(
                "LIMIT_CHANGED", "mixed", "the limit is another one", before.get("limit", ""),
                after.get("limit", ""), "rows until now count",
            )  # fmt: skip
        if pair.after.kind != "join" or before == after:
            continue
        if joins[0] != joins[1]:
            yield _bad(
                edit, "JOIN_CHANGED", "the join is of another type", *joins,
                "what a semi join has matched it does not keep" if "LeftSemi" in joins
                else "rows that left its state before were padded by the old type, or not",
                "corrupts" if "LeftSemi" in joins else "note",
            )  # fmt: skip
        conditions = [before.get("condition", ""), after.get("condition", "")]
        if conditions[0] != conditions[1]:
            narrower = joins == ["Inner", "Inner"] and _narrower(*conditions)
            yield Change(
                "JOIN_CHANGED", "note" if narrower else "mixed", "the join has another condition",
                *map(readable, conditions),
                "rows that are kept match by the new one" if narrower
                else "rows that left its state by the old condition match nothing any more",
            )  # fmt: skip


@says("STATE_CODE_CHANGED", "STATE_VARIABLE_CHANGED", "STATE_TIMERS_CHANGED")
def python_state_changed(edit: Edit) -> Iterator[Change]:
    """Code of yours that keeps state is another one, or declares other state.

    What the old code has kept stays, and the new code goes on with it. A variable that has another
    name begins empty, and Spark drops what was in the old one. Fields of a state are read by their
    order: two of one type that change places are swapped in silence.

    What to do: look at what the new code makes of the old state, and `accept`; or `rebuild`.
    """
    for pair in edit.pairs():
        if pair.after.kind != "python":
            continue
        before, after = dict(pair.before.settings), dict(pair.after.settings)
        found = [*_variables(edit, before, after), *_timers(edit, before, after)]
        yield from found
        if before.get("code") != after.get("code") and not any(
            c.verdict in ("corrupts", "fails") for c in found
        ):
            yield Change(
                "STATE_CODE_CHANGED", "mixed", "your code that keeps state is another one", "", "",
                "what the old code has kept stays, and the new one goes on with it",
            )  # fmt: skip
        for old, new in pair.branches():
            if old and new and not _same(old.values, new.values):
                yield Change(
                    "STATE_CODE_CHANGED", "mixed", "your code gets other columns",
                    _shown(old.values), _shown(new.values), "what it has kept is of the old ones",
                )  # fmt: skip


def _variables(
    edit: Edit, before: dict[str, str], after: dict[str, str]
) -> Iterator[Change]:
    olds = {k: v for k, v in before.items() if k.startswith("state ")}
    news = {k: v for k, v in after.items() if k.startswith("state ")}
    for gone in sorted(olds.keys() - news.keys()):
        yield _bad(
            edit, "STATE_VARIABLE_CHANGED", f'the variable "{gone[6:]}" is gone, or renamed',
            f"{gone[6:]}: {olds[gone]}", ", ".join(n[6:] for n in sorted(news)),
            "Spark drops what was in it; one with another name begins empty",
        )  # fmt: skip
    for name in sorted(news.keys() - olds.keys()):
        yield Change(
            "STATE_VARIABLE_CHANGED", "note", f'the variable "{name[6:]}" is new', "",
            news[name], "it begins empty",
        )  # fmt: skip
    for name in sorted(olds.keys() & news.keys()):
        if olds[name] == news[name]:
            continue
        if re.sub(r" for \d+ ms", "", olds[name]) == re.sub(r" for \d+ ms", "", news[name]):
            yield Change(
                "STATE_VARIABLE_CHANGED", "mixed", f'"{name[6:]}" has another time to live',
                olds[name], news[name], "what is kept already has the old one",
            )  # fmt: skip
        else:
            yield _bad(
                edit, "STATE_VARIABLE_CHANGED", f'the variable "{name[6:]}" is of another type',
                olds[name], news[name], "what is kept would be read by position",
            )  # fmt: skip
    if before.get("state") != after.get("state"):
        yield _bad(
            edit, "STATE_VARIABLE_CHANGED", "the fields of the state are others",
            before.get("state", ""), after.get("state", ""),
            "a state is read by the order of its fields, whatever they are called",
        )  # fmt: skip


def _timers(edit: Edit, before: dict[str, str], after: dict[str, str]) -> Iterator[Change]:
    for name in ("timeMode", "timeout", "outputMode"):
        if before.get(name) != after.get(name):
            yield _bad(
                edit, "STATE_TIMERS_CHANGED", "timers go by something else"
                if name != "outputMode" else "your code gives its rows in another mode",
                before.get(name, ""), after.get(name, ""),
                "timers that are set stay as they are", "mixed",
            )  # fmt: skip


# -- what rules share ------------------------------------------------------------------------------


def _ways(edit: Edit) -> Iterator[tuple[Pair, Branch, Branch]]:
    for pair in edit.pairs():
        for old, new in pair.branches():
            if old is not None and new is not None:
                yield pair, old, new


def _bad(
    edit: Edit, code: str, message: str, before: str, after: str, detail: str,
    silent: Verdict = "corrupts",
) -> Change:  # fmt: skip
    """What Spark refuses, or else accepts without a word."""
    if edit.restart.error:
        said = "Spark refuses it: the checkpoint has state of other types"
        return Change(code, "fails", message, before, after, said, edit.restart.error)
    return Change(code, silent, message, before, after, detail)


def _same(olds: Sequence[Term], news: Sequence[Term]) -> bool:
    return [(t.text, t.type) for t in olds] == [(t.text, t.type) for t in news]


def _texts(terms: Sequence[Term]) -> list[str]:
    return [term.text for term in terms]


def _shown(terms: Sequence[Term]) -> str:
    return ", ".join(shown(term) for term in terms)


def _window(text: str) -> bool:
    return text.startswith(("window(", "session_window("))


def _of(text: str) -> str:
    """The column that windows are of."""
    return text.partition("(")[2].partition(",")[0]


def _about_keys_only(old: Branch, new: Branch) -> bool:
    """Whether conditions were only added, and they look at nothing but the keys of groups."""
    if not set(old.filters) < set(new.filters):
        return False
    columns = {c for text in set(new.filters) - set(old.filters) for c in _columns(text)}
    keys = {k.text.partition(":")[0] for k in new.keys}
    return bool(columns) and columns <= keys


def _narrower(before: str, after: str) -> bool:
    """Whether ranges of time have become shorter, and nothing else is another."""
    olds, news = before.split(" AND "), after.split(" AND ")
    if [re.sub(r"-?\d+:interval", "", o) for o in olds] != [
        re.sub(r"-?\d+:interval", "", n) for n in news
    ]:
        return False
    for old, new in zip(olds, news, strict=True):
        numbers = [[int(n) for n in re.findall(r"(-?\d+):interval", t)] for t in (old, new)]
        if len(numbers[0]) > 1 or len(numbers[0]) != len(numbers[1]):
            return False
        lower = re.match(r"LessThan(OrEqual)?\(TimestampAddInterval", new) is not None
        for was, now in zip(*numbers, strict=True):
            if (now < was) if lower else (now > was):
                return False
    return True


def _columns(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])([A-Za-z0-9_]+\.[A-Za-z_]\w*)(?=:)", text))


def _bounded(pair: Pair, *branches: Branch) -> bool:
    """Whether a watermark does anything to an operator."""
    if pair.after.kind in ("join", "session", "dedup within watermark"):
        return True
    if pair.after.kind == "python":
        told = " ".join(pair.after.settings.values())
        return "EventTime" in told
    if pair.after.kind == "limit":
        return False
    return any(
        column in key.text for branch in branches for key in branch.keys for column, _ in
        branch.marks
    )  # fmt: skip


def _marks(branch: Branch) -> str:
    return ", ".join(f"{readable(column)} - {millis / 1000:g}s" for column, millis in branch.marks)


def _all_marks(edit: Edit) -> Iterator[tuple[str, int]]:
    for operator in edit.old.shape.operators if edit.old.shape else ():
        for side in operator.sides:
            for branch in side:
                yield from branch.marks


def _listed(kinds: object) -> str:
    names = [_WORDS[k] for k in kinds]  # type: ignore[attr-defined]
    return ", ".join(names) or "no state"


RULES = (
    operator_changed,
    keys_changed,
    aggregates_changed,
    columns_of_state_changed,
    filters_changed,
    input_changed,
    watermarks_changed,
    settings_changed,
    python_state_changed,
)
_ = Operator
