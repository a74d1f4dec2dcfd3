"""The pages of changes: the docstrings of the rules that say them."""

from __future__ import annotations

from evertable.check.pages import pages
from evertable.plan import table_rules
from evertable.plan.judge import RULES


def all_pages() -> dict[str, str]:
    """Code -> its page in Markdown."""
    return pages((*RULES, *table_rules.LAST))
