"""All rules over one edit: a verdict. Pure."""

from __future__ import annotations

from evertable.location import Location
from evertable.plan import io_rules, operator_rules, state_rules, table_rules
from evertable.plan.changes import Change, Judgement, Verdict, worst
from evertable.plan.edit import Edit

RULES = (*operator_rules.RULES, *state_rules.RULES, *io_rules.RULES, *table_rules.RULES)


def judge(edit: Edit, place: Location | None = None) -> Judgement:
    """What an edit means to a table that has run."""
    changes = [change for rule in RULES for change in rule(edit)]
    if edit.restart.error and not any(c.verdict == "fails" for c in changes):
        changes += [change for rule in table_rules.LAST for change in rule(edit)]
    shortened = dict(edit.old.settings).get("texts")
    if (
        not changes and shortened and edit.old.digest != edit.new.digest
    ):  # in texts that only digests are left of
        verdict: Verdict = "mixed" if edit.kept_state else "note"
        changes.append(
            Change("PLAN_NOT_COMPARED", verdict, "something changed, too long to be named")
        )
    unique = tuple(dict.fromkeys(changes))
    return Judgement(
        edit.new.table, worst(unique), unique, batch=edit.standing.next_batch, place=place
    )
