"""What queries give, told as stories of streams: pushed rows, batches, watermarks, results."""

from __future__ import annotations

import pytest

CLICKS = """
name: p
streams:
  clicks:
    format: json
    path: clicks
    schema: "ad STRING, user STRING, at TIMESTAMP, n INT"
    watermark: {column: at, delay: 10 minutes}
"""
SHOWN = """
  shown:
    format: json
    path: shown
    schema: "ad STRING, shown_at TIMESTAMP"
    watermark: {column: shown_at, delay: 5 minutes}
"""


def click(ad, minute, user="u", n=1):
    return {"ad": ad, "user": user, "at": f"12:{minute:02}", "n": n}


def shown(ad, minute):
    return {"ad": ad, "shown_at": f"12:{minute:02}"}


@pytest.fixture
def table(pipeline_of):
    """A pipeline of one table over clicks (and over what else is given), and that table."""

    def make(query, mode="append", more="", **keys):
        lines = "".join(f"    {key}: {value}\n" for key, value in keys.items())
        text = f"    query: |\n      {query}\n    output_mode: {mode}\n{lines}"
        pipeline = pipeline_of(f"{CLICKS}{more}tables:\n  t:\n{text}")
        return pipeline, pipeline.table("t")

    return make


def story(pipeline, *batches, stream="clicks"):
    pipeline.feed(stream, batches)
    pipeline.run_until_idle()


# -- windows and watermarks ------------------------------------------------------------------------


def test_append_emits_a_window_once_the_watermark_has_passed_it(table):
    p, t = table("SELECT window(at, '5 minutes') AS w, ad, count(*) AS n FROM clicks GROUP BY 1, 2")
    p.push("clicks", [click("a", 1), click("a", 2)])
    p.run_until_idle()
    assert (t.changes, t.watermark) == ([], "11:52:00")
    p.push("clicks", [click("z", 30)])
    p.run_batch()
    assert (t.changes, t.watermark) == ([], "12:20:00")  # a batch is judged by the one before it
    p.run_batch()
    assert t.changes == [{"w_start": "12:00:00", "w_end": "12:05:00", "ad": "a", "n": 2}]


def test_a_row_behind_the_watermark_is_dropped_and_counted(table):
    p, t = table("SELECT window(at, '5 minutes') AS w, ad, count(*) AS n FROM clicks GROUP BY 1, 2")
    story(p, [click("a", 1)], [click("z", 30)])
    story(p, [click("a", 3)])
    assert t.rows() == [{"w_start": "12:00:00", "w_end": "12:05:00", "ad": "a", "n": 1}]
    assert t.dropped_by_watermark == 1


def test_a_batch_judges_its_rows_by_the_watermark_of_the_batch_before(table):
    p, t = table("SELECT window(at, '5 minutes') AS w, ad, count(*) AS n FROM clicks GROUP BY 1, 2")
    story(p, [click("a", 1)], [click("z", 30)], [click("a", 3)])
    assert t.rows("n") == [{"n": 2}]
    assert t.dropped_by_watermark == 0


def test_a_row_behind_the_watermark_counts_in_a_window_that_is_open(table):
    p, t = table("SELECT window(at, '30 minutes') AS w, count(*) AS n FROM clicks GROUP BY 1")
    story(p, [click("z", 25)], [click("a", 1)], [click("y", 59)])
    assert t.rows("n") == [{"n": 2}]
    assert t.dropped_by_watermark == 0


def test_rows_of_one_batch_are_not_late_to_each_other(table):
    p, t = table("SELECT window(at, '5 minutes') AS w, ad, count(*) AS n FROM clicks GROUP BY 1, 2")
    story(p, [click("z", 59), click("a", 1)])
    assert t.rows("ad", "n") == [{"ad": "a", "n": 1}]


def test_the_watermark_never_goes_back(table):
    p, t = table("SELECT window(at, '5 minutes') AS w, count(*) AS n FROM clicks GROUP BY 1")
    story(p, [click("a", 40)])
    assert t.watermark == "12:30:00"
    story(p, [click("a", 35)])
    assert t.watermark == "12:30:00"


def test_rows_that_a_filter_drops_do_not_move_the_watermark(table):
    p, t = table(
        "SELECT window(at, '5 minutes') AS w, count(*) AS n FROM clicks WHERE n > 0 GROUP BY 1"
    )
    story(p, [click("a", 1)], [click("a", 50, n=0)])
    assert (t.rows(), t.watermark) == ([], "11:51:00")


def test_sliding_windows_count_a_row_in_each_of_theirs(table):
    p, t = table(
        "SELECT window(at, '10 minutes', '5 minutes') AS w, ad, count(*) AS n "
        "FROM clicks GROUP BY 1, 2"
    )
    story(p, [click("a", 7)], [click("z", 40)])
    assert t.rows("w_start", "n") == [
        {"w_start": "12:00:00", "n": 1}, {"w_start": "12:05:00", "n": 1},
    ]  # fmt: skip


def test_a_window_may_begin_at_an_offset(table):
    p, t = table(
        "SELECT window(at, '10 minutes', '10 minutes', '3 minutes') AS w, count(*) AS n "
        "FROM clicks GROUP BY 1"
    )
    story(p, [click("a", 2), click("a", 4)], [click("z", 40)])
    assert t.rows("w_start", "n") == [
        {"w_start": "11:53:00", "n": 1}, {"w_start": "12:03:00", "n": 1},
    ]  # fmt: skip


def test_a_session_ends_when_nothing_has_come_for_its_gap(table):
    p, t = table(
        "SELECT session_window(at, '5 minutes') AS w, ad, count(*) AS n FROM clicks GROUP BY 1, 2"
    )
    story(p, [click("a", 1), click("a", 3), click("a", 9)], [click("z", 50)])
    assert t.rows() == [
        {"w_start": "12:01:00", "w_end": "12:08:00", "ad": "a", "n": 2},
        {"w_start": "12:09:00", "w_end": "12:14:00", "ad": "a", "n": 1},
    ]


def test_a_row_between_two_sessions_makes_them_one(table):
    p, t = table(
        "SELECT session_window(at, '5 minutes') AS w, ad, count(*) AS n FROM clicks GROUP BY 1, 2"
    )
    story(p, [click("a", 1), click("a", 9)], [click("a", 5)], [click("z", 50)])
    assert t.rows() == [{"w_start": "12:01:00", "w_end": "12:14:00", "ad": "a", "n": 3}]


def test_what_is_kept_of_a_window_goes_when_it_is_over(table):
    p, t = table("SELECT window(at, '5 minutes') AS w, ad, count(*) AS n FROM clicks GROUP BY 1, 2")
    story(p, [click("a", 1), click("b", 1)])
    assert t.state(ad="a") == [
        {"window": {"start": "12:00:00", "end": "12:05:00"}, "ad": "a", "count": 1}
    ]
    story(p, [click("z", 30)])
    assert [row["ad"] for row in t.state()] == ["z"]


# -- modes -----------------------------------------------------------------------------------------


def test_update_replaces_the_row_of_a_key_and_emits_only_what_changed(table):
    p, t = table("SELECT ad, sum(n) AS total FROM clicks GROUP BY ad", "update")
    story(p, [click("a", 1), click("b", 1)])
    p.push("clicks", [click("a", 2, n=5)])
    p.run_batch()
    assert t.changes == [{"ad": "a", "total": 6}]
    assert t.rows() == [{"ad": "a", "total": 6}, {"ad": "b", "total": 1}]


def test_null_is_a_key_like_any_other(table):
    p, t = table("SELECT ad, sum(n) AS total FROM clicks GROUP BY ad", "update")
    story(p, [{"n": 1}, click("a", 1)], [{"n": 2}])
    assert t.rows() == [{"ad": "a", "total": 1}, {"ad": None, "total": 3}]


def test_complete_replaces_the_whole_table(table):
    p, t = table("SELECT ad, count(*) AS n FROM clicks GROUP BY ad", "complete")
    p.feed("clicks", [[click("a", 1), click("b", 1)], [click("b", 1)]])
    assert t.rows() == t.changes == [{"ad": "a", "n": 1}, {"ad": "b", "n": 2}]


def test_sorting_and_limits_in_complete_mode(table):
    p, t = table(
        "SELECT ad, count(*) AS n FROM clicks GROUP BY ad ORDER BY n DESC, ad LIMIT 2", "complete"
    )
    story(p, [click("a", 1), click("b", 1), click("b", 2), click("c", 1)])
    assert t.rows() == [{"ad": "a", "n": 1}, {"ad": "b", "n": 2}]


def test_an_aggregate_of_everything_is_one_row(table):
    p, t = table("SELECT count(*) AS n, sum(n) AS total FROM clicks", "update")
    story(p, [click("a", 1, n=2)], [click("b", 1, n=3)])
    assert t.rows() == [{"n": 2, "total": 5}]


def test_a_limit_in_append_mode_holds_over_all_batches(table):
    p, t = table("SELECT ad FROM clicks LIMIT 3")
    story(p, [click("a", 1), click("b", 2)], [click("c", 3), click("d", 4)])
    assert t.rows() == [{"ad": "a"}, {"ad": "b"}, {"ad": "c"}]


GROUPINGS = {
    "CUBE (ad, user)": [("a", "u", 3), ("a", "v", 3), ("a", None, 6), ("b", "u", 4),
                        ("b", None, 4), (None, "u", 7), (None, "v", 3), (None, None, 10)],
    "ROLLUP (ad, user)": [("a", "u", 3), ("a", "v", 3), ("a", None, 6), ("b", "u", 4),
                          ("b", None, 4), (None, None, 10)],
    "GROUPING SETS ((ad), (user))": [("a", None, 6), ("b", None, 4), (None, "u", 7),
                                     (None, "v", 3)],
}  # fmt: skip


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_cubes_and_rollups(table, grouping):
    p, t = table(f"SELECT ad, user, sum(n) AS n FROM clicks GROUP BY {grouping}", "complete")
    story(p, [click("a", 1, "u", 1), click("a", 1, "v", 3)],
          [click("a", 1, "u", 2), click("b", 1, "u", 4)])  # fmt: skip
    assert t.rows() == [{"ad": ad, "user": user, "n": n} for ad, user, n in GROUPINGS[grouping]]


# -- joins -----------------------------------------------------------------------------------------

MATCHED = [("a", "12:01:00", "12:03:00"), ("z", "12:58:00", "12:58:00")]
ONLY_SHOWN = [("b", "12:02:00", None)]
ONLY_CLICKED = [("a", None, "12:40:00"), ("c", None, "12:04:00")]
JOINS = {
    "INNER": MATCHED,
    "LEFT OUTER": MATCHED + ONLY_SHOWN,
    "RIGHT OUTER": MATCHED + ONLY_CLICKED,
    "FULL OUTER": MATCHED + ONLY_SHOWN + ONLY_CLICKED,
    "LEFT SEMI": [(ad, seen) for ad, seen, _ in MATCHED],
}


@pytest.mark.parametrize("kind", JOINS)
def test_a_join_of_two_streams(table, kind):
    columns = "s.ad, shown_at" if "SEMI" in kind else "coalesce(s.ad, c.ad) AS ad, shown_at, at"
    p, t = table(
        f"SELECT {columns} FROM shown s {kind} JOIN clicks c "
        "ON s.ad = c.ad AND at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES",
        more=SHOWN,
    )
    p.push("shown", [shown("a", 1), shown("b", 2)])
    p.push("clicks", [click("a", 3), click("c", 4), click("a", 40)])
    p.run_batch()
    p.push("shown", [shown("z", 58)])
    p.push("clicks", [click("z", 58)])
    p.run_until_idle()
    assert [tuple(row.values()) for row in t.rows()] == sorted(JOINS[kind], key=repr)


def test_an_outer_join_gives_its_null_row_when_no_click_can_come_any_more(table):
    p, t = table(
        "SELECT s.ad, at FROM shown s LEFT JOIN clicks c "
        "ON s.ad = c.ad AND at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES",
        more=SHOWN,
    )
    p.push("shown", [shown("b", 2)])
    p.push("clicks", [click("x", 20)])
    p.run_until_idle()
    assert t.rows() == []  # the watermark is at 11:57 still: a click of 12:11 might come
    p.push("shown", [shown("z", 58)])
    p.push("clicks", [click("z", 58)])
    p.run_until_idle()
    assert {"ad": "b", "at": None} in t.rows()


@pytest.mark.parametrize(("policy", "at"), [("min", "11:51:00"), ("max", "12:53:00")])
def test_the_watermark_of_two_streams_is_the_smaller_or_the_greater_as_declared(table, policy, at):
    p, t = table(
        "SELECT s.ad FROM shown s JOIN clicks c "
        "ON s.ad = c.ad AND at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES",
        more=SHOWN,
        watermark_policy=policy,
    )
    p.push("shown", [shown("a", 58)])
    p.push("clicks", [click("a", 1)])
    p.run_batch()
    assert t.watermark == at


def test_an_input_without_rows_holds_the_watermark(table):
    p, t = table(
        "SELECT s.ad FROM shown s JOIN clicks c "
        "ON s.ad = c.ad AND at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES",
        more=SHOWN,
    )
    story(p, [click("a", 50)], [click("a", 55)])
    assert t.watermark is None


def test_a_stream_joined_with_a_static_table(table):
    p, t = table(
        "SELECT ad, brand FROM clicks LEFT JOIN brands USING (ad)",
        more='statics:\n  brands: {format: csv, path: brands.csv, schema: "ad STRING, '
        'brand STRING"}\n',
    )
    p.static("brands", [{"ad": "a", "brand": "acme"}])
    story(p, [click("a", 1), click("b", 1)])
    assert t.rows() == [{"ad": "a", "brand": "acme"}, {"ad": "b", "brand": None}]


def test_a_stream_joined_with_itself(table):
    p, t = table(
        "SELECT l.ad AS one, r.ad AS other FROM clicks l JOIN clicks r "
        "ON l.user = r.user AND l.at = r.at AND l.ad < r.ad"
    )
    story(p, [click("a", 1, "x")], [click("b", 1, "x"), click("c", 1, "y")])
    assert t.rows() == [{"one": "a", "other": "b"}]


def test_a_union_of_a_stream_with_a_view_of_itself(table):
    p, t = table(
        "SELECT ad FROM clicks UNION ALL SELECT ad FROM only_a",
        more="views:\n  only_a: SELECT * FROM clicks WHERE ad = 'a'\n",
    )
    story(p, [click("a", 1), click("b", 2)])
    assert t.rows() == [{"ad": "a"}, {"ad": "a"}, {"ad": "b"}]


# -- duplicates ------------------------------------------------------------------------------------


def test_distinct_rows_are_told_once(table):
    p, t = table("SELECT DISTINCT ad, at FROM clicks", "update")
    story(p, [click("a", 1), click("a", 1), click("b", 1)], [click("a", 1)])
    assert t.rows() == [{"ad": "a", "at": "12:01:00"}, {"ad": "b", "at": "12:01:00"}]


def deduplicated(pipeline_of, dedup):
    pipeline = pipeline_of(
        f"{CLICKS}    dedup: {dedup}\ntables:\n  t: {{query: 'SELECT ad, at FROM clicks'}}\n"
    )
    return pipeline, pipeline.table("t")


def test_a_key_is_new_again_once_the_watermark_has_passed_it(pipeline_of):
    p, t = deduplicated(pipeline_of, "{keys: [ad], within: watermark}")
    story(p, [click("a", 1), click("a", 2)], [click("a", 3)], [click("z", 50)])
    assert [row["ad"] for row in t.rows()] == ["a", "z"]
    story(p, [click("a", 55)])
    assert [row["ad"] for row in t.rows()] == ["a", "a", "z"]


def test_a_key_is_old_for_ever_without_a_bound(pipeline_of):
    p, t = deduplicated(pipeline_of, "{keys: ad}")
    story(p, [click("a", 1), click("b", 1)], [click("z", 50)], [click("a", 55)])
    assert [row["ad"] for row in t.rows()] == ["a", "b", "z"]


# -- one operator after another --------------------------------------------------------------------

CHAINS = {
    "a window of windows": (
        "small: SELECT window(at, '5 minutes') AS w, count(*) AS n FROM clicks GROUP BY 1",
        "SELECT window(window_time(w), '20 minutes').start AS s, sum(n) AS n FROM small "
        "GROUP BY window(window_time(w), '20 minutes')",
        [{"s": "12:00:00", "n": 3}],
    ),
    "dedup, then a window": (
        "small: SELECT DISTINCT ad, user, at FROM clicks",
        "SELECT window.start AS s, count(*) AS n FROM small GROUP BY window(at, '20 minutes')",
        [{"s": "12:00:00", "n": 2}],
    ),
    "a join, then a window": (
        "small: SELECT s.ad, at FROM shown s JOIN clicks c ON s.ad = c.ad"
        " AND at BETWEEN shown_at AND shown_at + INTERVAL 10 MINUTES",
        "SELECT window.start AS s, count(*) AS n FROM small GROUP BY window(at, '20 minutes')",
        [{"s": "12:00:00", "n": 2}],
    ),
    "a session, then a window": (
        "small: SELECT session_window(at, '5 minutes') AS w, ad, count(*) AS n FROM clicks"
        " GROUP BY 1, 2",
        "SELECT window(window_time(w), '20 minutes').start AS s, sum(n) AS n, count(*) AS sessions"
        " FROM small GROUP BY window(window_time(w), '20 minutes')",
        [{"s": "12:00:00", "n": 3, "sessions": 2}],
    ),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_one_stateful_operator_after_another(table, chain):
    view, query, expected = CHAINS[chain]
    p, t = table(query, more=f"{SHOWN}views:\n  {view}\n")
    p.push("shown", [shown("a", 1), shown("b", 58)])
    p.push("clicks", [click("a", 1), click("a", 1), click("b", 12)])
    p.run_batch()
    p.feed("clicks", [[click("z", 59)], [click("z", 59)]])
    p.run_until_idle()
    assert t.rows() == expected


# -- views, processing time, crashes ---------------------------------------------------------------


def test_views_over_views(table):
    p, t = table(
        "SELECT * FROM twice_big",
        more="views:\n  big: SELECT ad, n FROM clicks WHERE n > 2\n"
        "  twice_big: SELECT ad, n * 2 AS n FROM big\n",
    )
    story(p, [click("a", 1, n=3), click("b", 1, n=1)])
    assert t.rows() == [{"ad": "a", "n": 6}]


def test_a_trigger_waits_for_its_time(table):
    p, t = table("SELECT ad FROM clicks", trigger="{processing_time: 1 minute}")
    p.push("clicks", [click("a", 1)])
    p.advance("59 seconds")
    assert t.rows() == []
    p.advance("1 second")
    assert t.rows() == [{"ad": "a"}]


def test_current_timestamp_is_the_time_of_the_batch(table):
    p, t = table("SELECT ad, current_timestamp() AS seen FROM clicks")
    p.push("clicks", [click("a", 1)])
    p.advance("3 hours")
    assert t.rows() == [{"ad": "a", "seen": "03:00:00"}]


@pytest.mark.parametrize("point", ["BEFORE_DATA", "AFTER_DATA", "AFTER_SINK_COMMIT"])
@pytest.mark.parametrize(
    ("mode", "query"),
    [
        ("append", "SELECT ad, n FROM clicks"),
        ("append", "SELECT window(at, '5 minutes') AS w, sum(n) AS n FROM clicks GROUP BY 1"),
        ("update", "SELECT ad, sum(n) AS n FROM clicks GROUP BY ad"),
        ("complete", "SELECT ad, sum(n) AS n FROM clicks GROUP BY ad"),
    ],
)
def test_a_crash_leaves_no_trace(table, point, mode, query):
    from evertable.testing import Fault

    batches = [[click("a", 1), click("b", 2)], [click("a", 20)], [click("z", 40)]]
    p, t = table(query, mode)
    story(p, *batches)
    undisturbed = (t.rows(), t.state(), t.watermark, t.batches)
    p.reset()
    t = p.table("t")
    p.feed("clicks", batches[:1])
    p.push("clicks", batches[1])
    with p.crash(Fault[point]):
        p.run_batch()
    p.restart()
    p.run_batch()
    story(p, batches[2])
    assert (t.rows(), t.state(), t.watermark, t.batches) == undisturbed
