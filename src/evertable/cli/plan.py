"""`evertable plan [FILE]`: what an edit means to the tables that run already; changes nothing."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evertable.cli.check import counts
from evertable.cli.check_formats import as_github
from evertable.cli.main import pipeline_arguments, sets_of
from evertable.cli.terminal import Terminal, clean, plural
from evertable.errors import Finding, Refused
from evertable.model.pipeline import Pipeline
from evertable.plan.answers import Answer, parsed
from evertable.plan.changes import GOES_ON, VERDICTS, Change, Judgement
from evertable.plan.ways import STEPS

_MARKS = {"same": "fine", "safe": "fine", "note": "fact", "mixed": "question",
          "corrupts": "broken", "fails": "broken"}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    pipeline_arguments(parser)
    parser.add_argument("--only", metavar="A,B", help="these tables only")
    parser.add_argument(
        "--answer", action="append", default=[], metavar="TABLE=WAY", help="the way of a table"
    )
    parser.add_argument(
        "--against", metavar="REV", help="another git revision instead of the checkpoints"
    )
    parser.add_argument(
        "--format", choices=["text", "json", "github"], default="text", help="for people, or for CI"
    )
    parser.add_argument("--json", action="store_const", const="json", dest="format")


def command(options: argparse.Namespace) -> int:
    from evertable.project import open_pipeline
    from evertable.run.runner import chosen

    begun = time.monotonic()
    pipeline = open_pipeline(options.file, sets_of(options))
    only = options.only.split(",") if options.only else []
    tables = [t.name for t in chosen(pipeline, only)]
    given = answers_of(options.answer, tables)
    with tempfile.TemporaryDirectory(prefix="evertable-plan-") as scratch:
        found = _plans(options, pipeline, os.path.join(scratch, "logs"))
    judged = [j for j in found if j.table in tables]
    _must_be_offered(judged, given)
    took = time.monotonic() - begun
    terminal = Terminal.of(sys.stdout)
    if options.format == "json":
        print(json.dumps(as_json(judged), default=str))
    elif options.format == "github":
        for line in as_github([_finding(j) for j in judged if not j.goes_on]):
            print(line)
    else:
        _show(terminal, pipeline, judged, took, options.against)
    asked = {} if options.against else _asked(terminal, judged, given, options.format)
    for table, answer in {**given, **asked}.items():
        _keep(pipeline, next(j for j in judged if j.table == table), answer)
    return _code(judged, {**given, **asked}, options)


def _plans(options: argparse.Namespace, pipeline: Pipeline, logs: str) -> list[Judgement]:
    from evertable.run.plans import plans_against, plans_of

    if not options.against:
        return plans_of(pipeline, logs)
    from evertable.cli.revision import checked_out
    from evertable.project import discover, open_pipeline

    file = options.file or discover()
    with checked_out(file, options.against) as then:
        return plans_against(open_pipeline(then, sets_of(options)), pipeline, logs)


def answers_of(texts: Sequence[str], tables: Sequence[str]) -> dict[str, Answer]:
    """--answer, by table."""
    found = dict(parsed(text) for text in texts)
    for table in found:
        if table not in tables:
            from evertable.model.names import did_you_mean

            raise Refused(
                Finding(
                    "TABLE_UNKNOWN", f'there is no table "{table}"',
                    hint=did_you_mean(table, tables) or f"tables: {', '.join(tables)}",
                )
            )  # fmt: skip
    return found


def _must_be_offered(judged: Sequence[Judgement], given: Mapping[str, Answer]) -> None:
    wrong = []
    for judgement in judged:
        answer = given.get(judgement.table)
        if answer and answer.way not in {o.way for o in judgement.offers}:
            wrong.append(
                Finding(
                    "ANSWER_NOT_OFFERED",
                    f'table "{judgement.table}" cannot go the way of {answer.way}',
                    judgement.place,
                    detail=f"its verdict is {judgement.verdict}",
                    hint="ways: "
                    + (", ".join(o.way for o in judgement.offers) or "none is needed or possible"),
                )
            )
    if wrong:
        raise Refused(*wrong)


def _code(
    judged: Sequence[Judgement], answered: Mapping[str, Answer], options: argparse.Namespace
) -> int:
    open_ones = [j for j in judged if not j.goes_on and not j.answer and j.table not in answered]
    if not open_ones:
        return 0
    asks = any(j.verdict == "mixed" for j in open_ones) and not options.against
    worse = any(j.verdict in ("corrupts", "fails") for j in open_ones)
    return 3 if asks and not worse else 1


def _show(
    terminal: Terminal, pipeline: Pipeline, judged: list[Judgement], took: float, against: str
) -> None:
    file = counts(pipeline).partition(":")[0]
    what = f"git revision {against}" if against else f"the checkpoints in {pipeline.storage}/"
    terminal.with_time(f"{file} against {clean(what)}", took)
    terminal.line()
    number = Counter(j.verdict for j in judged if not j.new)
    if number["same"]:
        terminal.line(f"{terminal.mark('fine')} same      {plural(number['same'], 'table')}")
    news = [j.table for j in judged if j.new]
    if news:
        listed = ", ".join(news)
        terminal.line(f"{terminal.mark('fact')} new       {listed}: from the beginning")
    width = max([5, *(len(j.table) for j in judged)])
    for judgement in sorted(judged, key=lambda j: VERDICTS.index(j.verdict)):
        if judgement.verdict != "same":
            _one(terminal, judgement, width)
    if all(j.verdict == "same" for j in judged):
        terminal.line()
        terminal.line("nothing changed: `evertable run` goes on where it stopped")
    elif all(j.goes_on for j in judged):
        terminal.line()
        terminal.line(f"{terminal.mark('next')} evertable run")
    elif any(not j.goes_on and not j.answer for j in judged) and not against:
        terminal.line("`evertable run` refuses until this is answered")


def _one(terminal: Terminal, judgement: Judgement, width: int) -> None:
    mark = terminal.mark(_MARKS[judgement.verdict])
    first = [c for c in judgement.changes if c.verdict == judgement.verdict]
    place = str(judgement.place or "")
    said = clean(first[0].message, newlines=False) if first else ""
    terminal.line(f"{mark} {judgement.verdict:<9} {judgement.table:<{width}}  {place}  {said}")
    for change in sorted(judgement.changes, key=lambda c: -VERDICTS.index(c.verdict)):
        if change is not first[0]:
            terminal.line(f"    {change.verdict:<9} {clean(change.message, newlines=False)}")
        _sides(terminal, change)
    if not judgement.goes_on:
        terminal.line()
        terminal.finding(_finding(judgement))
        if judgement.answer:
            terminal.line(f"  answered: {judgement.answer}; `evertable run` goes that way")
        terminal.line()


def _sides(terminal: Terminal, change: Change) -> None:
    if change.before or change.after:
        if change.before:
            terminal.line(f"              - {clean(change.before, newlines=False)}")
        if change.after:
            terminal.line(f"              + {clean(change.after, newlines=False)}")
    if change.detail and change.verdict in GOES_ON:
        terminal.line(f"              {clean(change.detail, newlines=False)}")


def _finding(judgement: Judgement) -> Finding:
    from evertable.run.planning import refusal

    found = refusal(judgement)
    details = [c.detail for c in judgement.changes if c.verdict == judgement.verdict]
    return replace(found, detail="\n".join(dict.fromkeys(filter(None, details))))


def _asked(
    terminal: Terminal,
    judged: Sequence[Judgement],
    given: Mapping[str, Answer],
    format: str,
) -> dict[str, Answer]:
    """One question for each table that needs an answer; nobody is asked where nobody is."""
    found: dict[str, Answer] = {}
    if format != "text" or not terminal.asks:
        return found
    for judgement in judged:
        if judgement.goes_on or judgement.answer or judgement.table in given:
            continue
        if not judgement.offers:
            continue
        terminal.line(f"{terminal.mark('question')} {judgement.table}")
        for number, offer in enumerate(judgement.offers, 1):
            cost = f"  {offer.cost}" if offer.cost else ""
            terminal.line(f"  {number}  {offer.way:<11} {offer.said}{cost}")
        terminal.out.write("\nwhich one? [none] ")
        terminal.out.flush()
        told = sys.stdin.readline().strip()
        if told.isdigit() and 1 <= int(told) <= len(judgement.offers):
            way = judgement.offers[int(told) - 1].way
            found[judgement.table] = parsed(f"{judgement.table}={way}")[1]
            terminal.line()
            for step in STEPS[way]:
                terminal.line(f"{terminal.mark('next')} {step.said}")
    return found


def _keep(pipeline: Pipeline, judgement: Judgement, answer: Answer) -> None:
    from evertable.run.planning import Planning

    table = pipeline.table(judgement.table)
    assert table is not None
    planning = Planning(pipeline, table)
    standing = planning.standing()
    planning.answers.keep(
        replace(
            answer,
            old=judgement.told.get("old", ""),
            new=judgement.told.get("new", ""),
            since=standing.query_id,
            from_offsets=dict(standing.offsets),
        )
    )


def as_json(judged: Sequence[Judgement]) -> dict[str, Any]:
    worst = max((j.verdict for j in judged), key=VERDICTS.index, default="same")
    return {
        "v": 1,
        "verdict": worst,
        "tables": [
            {
                "name": j.table,
                "verdict": j.verdict,
                "new": j.new,
                "batch": j.batch,
                "answer": j.answer or None,
                "changes": [
                    {
                        "code": c.code, "verdict": c.verdict, "message": c.message,
                        "file": j.place.file if j.place else None,
                        "line": j.place.line if j.place else None,
                        "before": c.before, "after": c.after, "detail": c.detail,
                        "spark": c.spark or None,
                    }
                    for c in j.changes
                ],
                "ways": [
                    {"way": o.way, "said": o.said, "cost": o.cost,
                     "steps": [s.said for s in STEPS[o.way]]}
                    for o in j.offers
                ],
            }
            for j in judged
        ],
    }  # fmt: skip
