"""Every rule there is, and the pages that are made of them."""

from __future__ import annotations

from evertable.check import model_rules, plan_rules
from evertable.check.pages import pages


def all_pages() -> dict[str, str]:
    """Code -> its page in Markdown, of every rule."""
    return pages((*model_rules.RULES, plan_rules.cannot_tell, *plan_rules.RULES))
