"""Rules judge plain facts, comments silence them, and what is found is shown for people and CI."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from evertable.check import plan_rules
from evertable.check.allowed import allows_in, silence
from evertable.check.forecast import Flow, forecast
from evertable.check.foreseen import Foreseen, Target, emission, emits, keeps, promise
from evertable.check.keys_model import fit, uniform
from evertable.check.pages import codes_of
from evertable.check.plan_rules import check_plan
from evertable.check.rules import all_pages
from evertable.cli.check_formats import as_github
from evertable.cli.explain import svg
from evertable.errors import Finding
from evertable.location import Location
from evertable.model.facts import Asked, Code, Kept, Mark, Plan, Risk, Step
from evertable.model.pipeline import Pipeline, Query, SinkSpec, Table, Trigger
from evertable.plan.pages import all_pages as pages_of_changes
from evertable.sinks.registry import capabilities

ROOT = Path(__file__).parent.parent
MINUTE = 60_000
BOUNDED = Kept("window", "bounded", ("window", "k"), "window", 10 * MINUTE, window=5 * MINUTE,
               slide=5 * MINUTE, of="a", marked=("at",))  # fmt: skip
GROWING = Kept("window", "growing", ("window",), of="a")
MARKED = Kept("aggregate", "growing", ("hour",), derived=("hour",), marked=("at",), of="a")
JOIN = Kept("join", "growing", ("k",), of="a", join="inner", side="left", marked=("at",))
DEDUP = Kept("dedup", "growing", ("k",), of="a")
PYTHON = Kept("python", "yours", ("k",), timers="event time", of="a")


def seen(*kept, mode="append", trigger="default", sink="embedded", **facts):
    plan_facts = {k: facts.pop(k) for k in list(facts) if k in Plan.__dataclass_fields__}
    spec = SinkSpec(format=sink)
    table = Table(
        name="t", query=Query(sql="SELECT 1", location=Location("p.yaml", 9)), output_mode=mode,
        trigger=Trigger(kind=trigger), sinks=(spec,), location=Location("p.yaml", 8),
    )  # fmt: skip
    record = capabilities(spec)
    target = Target(spec, record, record.guarantee)
    return Foreseen(table, Plan(kept=kept, **plan_facts), targets=(target,), **facts)


# what is seen, and the codes that are said of it
CASES = [
    (seen(), []),
    (seen(BOUNDED), []),
    (seen(BOUNDED, unknown="no such method"), ["PLAN_UNKNOWN"]),
    (seen(GROWING, mode="update"), ["STATE_UNBOUNDED"]),
    (seen(GROWING, mode="complete"), []),
    (seen(DEDUP), ["STATE_UNBOUNDED"]),
    (seen(MARKED, mode="update"), ["WATERMARK_UNUSED"]),
    (seen(JOIN), ["WATERMARK_UNUSED"]),
    (seen(Kept("aggregate", "growing", ("k",)), mode="update"), ["KEYS_FOR_EVER"]),
    (seen(Kept("window", "growing", marked=("at",)), mode="complete"), ["WATERMARK_IDLE"]),
    (seen(Kept("aggregate", "constant"), mode="update"), []),
    (seen(GROWING, mode="update", marks=(Mark("e", 1, below=("window",)),)),
     ["STATE_UNBOUNDED", "WATERMARK_TOO_LATE"]),
    (seen(BOUNDED, marks=(Mark("at", 0),)), ["WATERMARK_ZERO"]),
    (seen(marks=(Mark("at", 0),)), []),
    (seen(BOUNDED, unmarked_union=True), ["UNION_UNMARKED"]),
    (seen(BOUNDED, filtered=("n > 3",)), ["FILTER_MOVED"]),
    (seen(BOUNDED, mode="update", filtered=("n > 3",)), []),
    (seen(Kept("limit", "constant", limit=5)), ["LIMIT_ENDS"]),
    (seen(Kept("dedup", "bounded", collides=True)), ["DEDUP_AFTER_AGGREGATE"]),
    (seen(BOUNDED, partitions=200, slots=2), ["PARTITIONS_FROZEN"]),
    (seen(BOUNDED, partitions=200, slots=2, local=False), ["PARTITIONS_FROZEN"]),
    (seen(BOUNDED, partitions=200, local=False, partitions_given=True), []),
    (seen(BOUNDED, partitions=8, slots=2), []),
    (seen(BOUNDED, mode="update", sink="kafka"), ["UPDATE_WITHOUT_KEYS"]),
    (seen(BOUNDED, mode="update", sink="console"), []),
    (seen(BOUNDED, asked=Asked(clock=("now",))), ["CLOCK_IN_STATE"]),
    (seen(asked=Asked(clock=("now",))), []),
    (seen(asked=Asked(chance=("rand",))), ["CHANCE"]),
    (seen(risks=(Risk("CAST(v AS INT)", "try_cast(v AS INT)"),)), ["VALUE_MAY_FAIL"]),
    (seen(PYTHON), ["TIMERS_NEVER_FIRE"]),
    (seen(Kept("python", "yours", timers="processing time"), trigger="once"), ["TIMERS_WAIT"]),
    (seen(Kept("python", "yours", timers="none", code=Code(("n",)))), ["CODE_KEEPS_FOR_EVER"]),
    (seen(Kept("python", "yours", timers="none", code=Code(("n",), ("n",)))), []),
    (seen(Kept("python", "yours", timers="none", code=Code(("n",), removes=True))), []),
    (seen(by_batch=("applyInPandas",)), ["ONE_BATCH_AT_A_TIME"]),
    (seen(lossy=("a",)), ["SOURCE_FORGETS"]),
    (seen(twice=("a",)), ["STREAM_TWICE"]),
    (seen(largest_static=50_000_000), ["STATIC_READ_AGAIN"]),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "codes"), CASES)
def test_a_rule_says_it_of_these_facts(facts, codes):
    found = check_plan(facts)
    assert [finding.code for finding in found] == codes
    for finding in found:
        assert finding.place == Location("p.yaml", 9)
        assert finding.detail
        assert finding.hint


def test_each_rule_has_been_heard():
    said = {code for _, codes in CASES for code in codes}
    assert said == {code for rule in plan_rules.RULES for code in codes_of(rule)} | {"PLAN_UNKNOWN"}


def test_every_code_has_its_page_in_the_docs():
    pages = all_pages() | pages_of_changes()
    kept = {file.stem: file.read_text() for file in (ROOT / "docs/findings").glob("*.md")}
    assert kept == pages, "make pages writes them anew"
    for rule in plan_rules.RULES:
        assert "What to do:" in (rule.__doc__ or ""), rule.__name__


def test_what_is_kept_and_when_rows_come_in_words():
    assert keeps(seen(BOUNDED)) == "the windows of the last 15m"
    assert emits(seen(BOUNDED)) == "10m after a window ends"
    assert emits(seen(BOUNDED, mode="update")) == "every batch"
    assert emission(seen(BOUNDED, marks=(Mark("at", 1, "a"), Mark("bt", 1, "b")))) == [
        "one final row a window and k, once an event later than its end + 10m was seen on every "
        "input",
        "while one of a and b is idle nothing becomes final (policy min)",
    ]
    outer = Kept("join", "bounded", ("k",), "at", 60 * MINUTE, of="a", join="left outer",
                 side="left")  # fmt: skip
    assert emits(seen(outer)) == "matches at once, NULL rows after 1h"


def test_the_part_that_decides_the_promise_is_named():
    def said(**facts):
        one = seen(**facts)
        return promise(one, one.targets[0])

    assert said().word == "exactly once"
    assert said(lossy=("s",)) == ("at most once", "stream s cannot be read again after a crash")
    assert said(sink="console") == ("nothing kept", "sink console keeps no rows")
    assert said(sink="kafka", trigger="continuous").because.startswith("a continuous trigger")
    assert said(sink="kafka").word == "at least once"


PIPELINE = """\
streams:
  s:  # evertable: allow STREAM_TWICE it is small
    format: json
tables:
  # evertable: allow STATE_UNBOUNDED few visitors
  # of ours
  t:
    query: |
      SELECT 1
      -- evertable: allow CHANCE ids may differ
  u:
    # evertable: allow CHANCE
    # evertable: allow LIMIT_ENDS never said
    query: SELECT 1
"""


def told(text, *findings):
    lines = {"s": 2, "t": 7, "u": 11}
    tables = tuple(
        Table(name=n, query=Query(sql="SELECT 1", location=Location("p.yaml", lines[n] + 1)),
              location=Location("p.yaml", lines[n]))
        for n in "tu"
    )  # fmt: skip
    pipeline = Pipeline(name="p", root=".", tables=tables, location=Location("p.yaml", 1))
    allows = allows_in(pipeline, {"p.yaml": text})
    given = [(name, Finding(code, "m", Location("p.yaml", line), severity=severity))
             for name, code, line, severity in findings]  # fmt: skip
    return [(f.code, f.place.line) for f in silence(given, allows, pipeline)]


def test_a_comment_beside_a_definition_silences_a_warning_and_no_error():
    unused = [("ALLOW_UNUSED", 12), ("ALLOW_UNUSED", 13)]
    assert told(
        PIPELINE, ("t", "STATE_UNBOUNDED", 8, "warning"), ("t", "CHANCE", 9, "warning")
    ) == unused  # fmt: skip
    assert told(
        PIPELINE, ("t", "STATE_UNBOUNDED", 8, "error"), ("t", "CHANCE", 9, "note"),
        ("u", "CHANCE", 12, "warning"),
    ) == [("STATE_UNBOUNDED", 8), ("CHANCE", 12), ("ALLOW_UNUSED", 5), *unused]  # fmt: skip


def test_annotations_for_a_ci_cannot_be_broken_by_a_text():
    place = Location("a,b:c.yaml", 3)
    (line,) = as_github([Finding("CHANCE", "100%\nof: it", place, "why", "do", severity="note")])
    assert line == (
        "::notice file=a%2Cb%3Ac.yaml,line=3,title=CHANCE::100%25%0Aof: it%0Awhy%0Ahint: do"
    )


def test_the_picture_is_xml_with_every_text_as_text():
    steps = Step("window", "k < '<script>'", (BOUNDED,), (Step("stream", "a & b"),))
    drawn = ET.fromstring(svg([seen(BOUNDED, steps=steps)]))
    texts = [node.text for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "k < '<script>'" in texts
    assert "a & b" in texts
    assert "keeps the windows of the last 1…" in texts


@pytest.mark.parametrize(
    ("number", "exponent"), [(1_000, 1.0), (50_000, 0.8), (200_000, 1.1), (500, 0.0)]
)
def test_more_keys_are_foretold_from_one_row_in_ten(number, exponent):
    rng = np.random.default_rng(3)
    shares = np.arange(1, number + 1, dtype=float) ** -exponent
    shares /= shares.sum()
    counts = Counter(Counter(rng.choice(number, 20_000, p=shares)).values())
    true = float(np.sum(-np.expm1(-200_000 * shares)))
    about, least, most = fit(counts).about(lambda law: law.distinct(200_000))
    assert about == pytest.approx(true, rel=0.1)
    assert least * 0.9 <= true <= most * 1.1


def test_steady_state_is_rate_times_time():
    flow = Flow(10.0, uniform(1e9))
    one_minute = {"column": "at", "millis": MINUTE}
    side = Kept("join", "bounded", ("k",), of="a", side="left", **one_minute)
    assert forecast(side, flow, 0).rows == pytest.approx(600)
    assert forecast(side, flow, 6).rows == pytest.approx(660)  # the watermark is a batch behind
    known = Kept("dedup within watermark", "bounded", ("k",), **one_minute)
    assert forecast(known, flow, 0).rows == pytest.approx(600, rel=0.01)
    window = Kept("window", "bounded", ("window",), window=MINUTE, slide=MINUTE, **one_minute)
    assert forecast(window, Flow(10.0, uniform(1)), 0).rows == pytest.approx(2, rel=0.01)
    session = Kept("session", "bounded", ("k",), window=MINUTE, **one_minute)
    assert forecast(session, flow, 0).rows == pytest.approx(1_200, rel=0.01)
    assert forecast(Kept("aggregate", "constant"), flow, 0).rows == 1
    assert forecast(Kept("session", "bounded", ("k",)), flow, 0) is None


def test_a_growing_key_set_fills_a_memory_some_day():
    kept = Kept("aggregate", "growing", ("k",), row_bytes=100)
    found = forecast(kept, Flow(10.0, uniform(1e9)), 0, memory=100 * 864_000)
    assert found.grows
    assert found.rows == pytest.approx(864_000, rel=0.01)
    assert found.full_in == pytest.approx(86_400, rel=0.01)
    assert forecast(kept, Flow(10.0, uniform(50)), 0, memory=1e6).full_in is None
