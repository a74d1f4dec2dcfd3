"""`order_by` and `delete_when`: which of two rows with one key stays, whatever batch brings it."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evertable.errors import EvertableError
from kit import Failed
from targets import Embedded, Postgres, StagedPostgres


@pytest.fixture(params=[Embedded, Postgres, StagedPostgres], ids=lambda kind: kind.__name__)
def target(request, kit):
    return request.param(kit, request)


def run(target, keys="    order_by: v\n    delete_when: \"op = 'd'\"", key="k"):
    schema = "k STRING, j INT, v INT, op STRING"
    pipeline = target.kit.yaml(f"""
name: p
streams:
  s: {{format: json, path: in, schema: "{schema}", options: {{maxFilesPerTrigger: 1}}}}
tables:
  t:
    query: SELECT k, j, v, op FROM s
    output_mode: update
    key: {key}
    trigger: available_now
    sink: {target.sink()}
{keys}
""")
    return target.kit.run(pipeline)


def feed(target, *changes):
    names = ("k", "v", "op", "j")
    target.kit.feed("in", *(json.dumps(dict(zip(names, c, strict=False))) for c in changes))


def kept(target):
    return sorted(((r["k"], r["v"], r["op"]) for r in target.rows()), key=repr)


def test_the_newest_version_stays(target):
    feed(target, ("a", 5, "u"), ("b", 1, "u"), ("a", 7, "u"), ("a", 6, "u"))
    feed(target, ("a", 3, "u"), ("b", 2, "u"))
    run(target)
    assert kept(target) == [("a", 7, "u"), ("b", 2, "u")]


def test_a_removal_is_not_undone_by_an_older_version(target):
    feed(target, ("a", 1, "u"), ("b", 1, "u"), (None, 1, "u"))
    feed(target, ("a", 5, "d"), (None, 2, "d"), ("c", 9, "d"))
    feed(target, ("a", 4, "u"), (None, 1, "u"), ("c", 8, "u"))
    run(target)
    assert kept(target) == [("b", 1, "u")]
    feed(target, ("a", 6, "u"), (None, 3, "u"), ("b", 0, "d"))
    run(target)
    assert kept(target) == [("a", 6, "u"), ("b", 1, "u"), (None, 3, "u")]


def test_a_version_of_null_is_the_oldest(target):
    feed(target, ("a", None, "u"), ("b", 1, "u"))
    feed(target, ("a", 1, "u"), ("b", None, "d"))
    run(target)
    assert kept(target) == [("a", 1, "u"), ("b", 1, "u")]


def test_removal_without_versions(target):
    feed(target, ("a", 1, "u"), ("b", 1, "u"), (None, 1, "u"))
    feed(target, ("a", 1, "d"), ("b", 2, "u"), (None, 0, "d"))
    run(target, "    delete_when: \"op = 'd'\"")
    assert kept(target) == [("b", 2, "u")]


def test_removal_without_versions_of_a_key_twice(target):
    feed(target, ("a", 1, "u"), ("a", 1, "d"))
    with pytest.raises(Failed, match="KEY_TWICE") as failed:
        run(target, "    delete_when: \"op = 'd'\"")
    assert "order_by" in failed.value.finding.hint
    assert kept(target) == []


def test_a_key_twice_without_versions(target):
    feed(target, ("a", 1, "u"), ("a", 2, "u"))
    with pytest.raises(Failed, match="KEY_TWICE"):
        run(target, "")
    assert kept(target) == []


@pytest.mark.parametrize("null", [False, True])
def test_many_rows_at_once(target, null):
    """Postgres joins large batches and does not ask its index row by row."""
    feed(target, *((f"k{n}", n, "u") for n in range(0, 12_000, 2)))
    many = [(f"k{n}", -n, "x") for n in range(12_000)]
    feed(target, *many, *([(None, 1, "x")] if null else []))
    run(target, "")
    assert kept(target) == sorted(many + ([(None, 1, "x")] if null else []), key=repr)


def test_a_key_twice_among_many(target):
    feed(target, *((f"k{n}", n, "u") for n in range(11_000)), ("k5", 1, "u"))
    with pytest.raises(Failed, match="KEY_TWICE"):
        run(target, "")
    assert kept(target) == []


def test_versions_without_removals(target):
    feed(target, ("a", 1, "u"), ("a", 2, "u"), (None, 1, "u"))
    feed(target, ("a", 1, "x"), (None, 2, "x"), ("b", 1, "x"))
    run(target, "    order_by: v")
    assert kept(target) == [("a", 2, "u"), ("b", 1, "x"), (None, 2, "x")]


def test_keys_of_several_columns(target):
    feed(target, ("a", 1, "u", 1), ("a", 1, "u", 2), ("a", 1, "u", None))
    feed(target, ("a", 2, "d", 1), ("a", 2, "u", None))
    run(target, key="[k, j]")
    assert kept(target) == [("a", 1, "u"), ("a", 2, "u")]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 50), st.sampled_from("ud")),
    max_size=8,
)


@pytest.mark.parametrize("kind", [Embedded, Postgres], ids=lambda kind: kind.__name__)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batches=st.lists(CHANGES, min_size=1, max_size=4))
def test_however_changes_are_cut_into_batches(kind, request, kit, batches, tmp_path_factory):
    """The result is that of the newest version of each key, whatever came when."""
    from kit import Kit

    own = Kit(tmp_path_factory.mktemp("cut"), kit.spark)
    target = kind(own, request)
    fed = []
    for batch in batches:
        known = {(k, v) for k, v, _ in fed}
        fresh = list({(k, v): (k, v, op) for k, v, op in batch if (k, v) not in known}.values())
        fed += fresh
        if fresh:
            feed(target, *fresh)
    (own.folder / "in").mkdir(exist_ok=True)
    run(target)
    newest = {k: max((v, op) for other, v, op in fed if other == k) for k, _, _ in fed}
    expected = [(k, v, op) for k, (v, op) in newest.items() if op != "d"]
    assert kept(target) == sorted(expected, key=repr)


# -- said before the start -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ("    order_by: nope", "KEY_UNKNOWN"),
        ("    delete_when: nope = 1", "COLUMN_UNKNOWN"),
        ("    delete_when: v + 1", "VALUE_INVALID"),
        ('    delete_when: "\'"', "SQL_INVALID"),
    ],
)
def test_what_they_name_has_to_be_there(kit, request, keys, code):
    target = Embedded(kit, request)
    feed(target, ("a", 1, "u"))
    with pytest.raises(EvertableError, match=code):
        run(target, keys)


@pytest.mark.parametrize(
    ("mode", "sink"), [("append", "embedded"), ("update", "console"), ("complete", "embedded")]
)
def test_they_are_for_updates_by_key(kit, mode, sink):
    with pytest.raises(EvertableError, match="KEY_UNUSED"):
        kit.yaml(f"""
name: p
streams: {{s: {{format: rate}}}}
tables:
  t: {{query: SELECT * FROM s, output_mode: {mode}, sink: {sink}, order_by: value}}
""")
