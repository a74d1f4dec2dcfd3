"""Rules about how long state lives, how a join matches, and what code of the user's keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evertable.check.pages import says
from evertable.plan.changes import Change
from evertable.plan.edit import Edit, readable
from evertable.plan.saying import (
    WORDS,
    all_marks,
    is_bounded,
    marks_shown,
    narrower,
    refused_or,
    same_terms,
    shown_all,
)


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
            if old is None or new is None or not is_bounded(pair, old, new):
                continue
            what = WORDS[pair.after.kind]
            before, after = dict(old.marks), dict(new.marks)
            if before == after:
                continue
            if before and not after:
                yield Change(
                    "WATERMARK_GONE", "corrupts", f"nothing bounds the {what} any more",
                    marks_shown(old), "no watermark",
                    "groups that were final would be opened again by late rows, from zero",
                )  # fmt: skip
            else:
                yield Change(
                    "WATERMARK_CHANGED", "mixed", f"the watermark of the {what} is another one",
                    marks_shown(old) or "no watermark", marks_shown(new),
                    "what was final or late by the old one stays so; the watermark of the "
                    "checkpoint never goes back",
                )  # fmt: skip
    several = len({m[0] for s in edit.old.sources for m in all_marks(edit)}) > 1
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
            yield refused_or(
                edit, "JOIN_CHANGED", "the join is of another type", joins[0], joins[1],
                "what a semi join has matched it does not keep" if "LeftSemi" in joins
                else "rows that left its state before were padded by the old type, or not",
                "corrupts" if "LeftSemi" in joins else "note",
            )  # fmt: skip
        conditions = [before.get("condition", ""), after.get("condition", "")]
        if conditions[0] != conditions[1]:
            shorter = joins == ["Inner", "Inner"] and narrower(*conditions)
            yield Change(
                "JOIN_CHANGED", "note" if shorter else "mixed", "the join has another condition",
                readable(conditions[0]),
                readable(conditions[1]),
                "rows that are kept match by the new one" if shorter
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
            if old and new and not same_terms(old.values, new.values):
                yield Change(
                    "STATE_CODE_CHANGED", "mixed", "your code gets other columns",
                    shown_all(old.values), shown_all(new.values),
                    "what it has kept is of the old ones",
                )  # fmt: skip


def _variables(edit: Edit, before: dict[str, str], after: dict[str, str]) -> Iterator[Change]:
    olds = {k: v for k, v in before.items() if k.startswith("state ")}
    news = {k: v for k, v in after.items() if k.startswith("state ")}
    for gone in sorted(olds.keys() - news.keys()):
        yield refused_or(
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
            yield refused_or(
                edit, "STATE_VARIABLE_CHANGED", f'the variable "{name[6:]}" is of another type',
                olds[name], news[name], "what is kept would be read by position",
            )  # fmt: skip
    if before.get("state") != after.get("state"):
        yield refused_or(
            edit, "STATE_VARIABLE_CHANGED", "the fields of the state are others",
            before.get("state", ""), after.get("state", ""),
            "a state is read by the order of its fields, whatever they are called",
        )  # fmt: skip


def _timers(edit: Edit, before: dict[str, str], after: dict[str, str]) -> Iterator[Change]:
    for name in ("timeMode", "timeout", "outputMode"):
        if before.get(name) != after.get(name):
            yield refused_or(
                edit, "STATE_TIMERS_CHANGED", "timers go by something else"
                if name != "outputMode" else "your code gives its rows in another mode",
                before.get(name, ""), after.get(name, ""),
                "timers that are set stay as they are", "mixed",
            )  # fmt: skip


RULES = (watermarks_changed, settings_changed, python_state_changed)
