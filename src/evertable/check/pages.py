"""Which codes a rule may say; the page of a code is the docstrings of the rules that say it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

FOLDER = "docs/findings"
R = TypeVar("R", bound=Callable[..., Any])


def says(*codes: str) -> Callable[[R], R]:
    """Notes on a rule which codes it yields; its docstring is their page."""

    def noted(rule: R) -> R:
        rule.codes = codes  # type: ignore[attr-defined]
        return rule

    return noted


def codes_of(rule: Callable[..., Any]) -> tuple[str, ...]:
    found: tuple[str, ...] = rule.codes  # type: ignore[attr-defined]
    return found


def pages(rules: Iterable[Callable[..., Any]]) -> dict[str, str]:
    """Code -> its page in Markdown: the docstrings of the rules that say it."""
    found: dict[str, list[str]] = {}
    for rule in rules:
        lines = (rule.__doc__ or "").strip().splitlines()
        text = "\n".join(line.removeprefix("    ") for line in lines)
        for code in codes_of(rule):
            found.setdefault(code, []).append(text)
    return {code: f"# {code}\n\n" + "\n\n".join(texts) + "\n" for code, texts in found.items()}
