"""Spark's and Java's exceptions, mapped once to findings that a user can act on.

What no rule knows becomes SPARK_FAILED with Spark's own first line, never a stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from evertable.errors import EvertableError, Finding
from evertable.location import Location
from evertable.model.names import did_you_mean
from evertable.spark.error_rules import RULES, Rule
from evertable.spark.secrets import redact
from evertable.user_code import failure

_MOST_TEXT = 20_000


def explain(
    error: BaseException,
    what: str,
    place: Location | None = None,
    *,
    known: Sequence[str] = (),
) -> Finding:
    """The one finding for an exception that came out of Spark."""
    if isinstance(error, EvertableError):
        return error.findings[0].at(place)
    whole = "\n".join(_texts(error))[:_MOST_TEXT]
    if "PythonException" in whole or "FOREACH_BATCH_USER_FUNCTION_ERROR" in whole:
        finding = _user_code(whole, what, place)
        if finding:
            return finding
    first = _first_line(error)
    line = re.search(r"(?:line (\d+),? pos(?:ition)? \d+|line (\d+), pos)", whole)
    if place is not None and line and place.line:
        place = place.down(int(line[1] or line[2]) - 1)
    for rule in RULES:
        match = re.search(rule.pattern, whole)
        if match:
            group = next((g for g in match.groups() if g), "") if match.groups() else ""
            group = group.replace("`.`", ".").strip("'`")
            return Finding(
                rule.code,
                rule.message.format(what, redact(group)),
                place,
                detail=rule.detail or _suggestion_detail(rule, whole),
                hint=_hint(rule, group, known),
                spark=redact(first),
            )
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return failure(error, f"{what} failed", "INTERNAL").at(place)
    return Finding("SPARK_FAILED", f"{what} failed in Spark", place, spark=redact(first))


def explain_text(text: str, what: str, place: Location | None = None) -> Finding:
    """The finding for what Spark would say."""
    from pyspark.errors import PySparkException

    return explain(PySparkException(text), what, place)


def stack(error: BaseException) -> str:
    """The JVM's stack, for the log only."""
    return redact("\n".join(_texts(error)))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and what caused it, Java's causes included."""
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        java_cause = getattr(current, "_cause", None)
        current = java_cause if isinstance(java_cause, BaseException) else current.__cause__


def _texts(error: BaseException) -> Iterator[str]:
    """Everything an exception says, in words first, its stack last."""
    chain = list(_chain(error))
    for one in chain:
        yield _words(one)
    for one in chain:
        trace = getattr(one, "_stackTrace", None)
        yield trace if isinstance(trace, str) else ""


def _words(error: BaseException) -> str:
    described = getattr(error, "_desc", None)
    return described if isinstance(described, str) and described else str(error)


def _first_line(error: BaseException) -> str:
    """Spark's sentence: that of the innermost cause that is one of its named conditions."""
    sentences = [_sentence(_words(one)) for one in _chain(error)]
    named = [s for s in sentences if s.startswith("[") and not s.startswith("[STREAM_FAILED]")]
    said = [s for s in sentences if s and "awaitResult" not in s]
    return (named or said or [""])[-1]


def _sentence(text: str) -> str:
    line = next((ln.strip() for ln in text.splitlines() if ln.strip(": ")), "")
    line = re.sub(r"^An error occurred while calling \S+\s*:?\s*", "", line)
    return re.sub(r"\s*SQLSTATE: \w+.*$", "", line)[:300]


def _hint(rule: Rule, group: str, known: Sequence[str]) -> str:
    if rule.code == "NAME_UNKNOWN" and known:
        return did_you_mean(group, known) or f"known: {', '.join(sorted(known))}"
    return rule.hint.format()


def _suggestion_detail(rule: Rule, whole: str) -> str:
    if rule.code != "COLUMN_UNKNOWN":
        return ""
    match = re.search(r"Did you mean one of the following\? \[([^\]]*)\]", whole)
    return f"columns: {match[1].replace('`', '')}" if match else ""


def _user_code(whole: str, what: str, place: Location | None) -> Finding | None:
    """A Python worker's traceback: the user's innermost frame, and what was raised."""
    frames = [
        (file, int(line), name)
        for file, line, name in re.findall(r'File "([^"]+)", line (\d+), in (\S+)', whole)
        if "site-packages" not in file
        and "/pyspark/" not in file
        and "/py4j/" not in file
        and "/evertable/" not in file
        and not file.startswith("<frozen")
    ]
    raised = re.findall(
        r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration)\b.*)$", whole, re.MULTILINE
    )
    raised = [r for r in raised if not r.startswith(("py4j.", "org.", "java.", "pyspark."))]
    if not frames or not raised:
        return None
    file, line, name = frames[-1]
    return Finding(
        "USER_CODE_FAILED",
        redact(f"your code failed in {what}: {raised[-1]}"),
        Location(file, line),
        detail=f"in {name}; {what} is defined at {place}" if place else f"in {name}",
        hint="the batch is kept and comes again after the next start",
    )
