"""Rules over what Spark's planner says of a table: what it keeps, and what may go wrong with time.

A rule is a function of one `Foreseen`; `check_plan` runs them all, in this order. None of them
looks at Spark: the facts are plain values. A rule's docstring is its page in docs/findings/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from evertable.check.code_rules import CODE_RULES
from evertable.check.foreseen import Foreseen, growing, holds_back
from evertable.check.pages import says
from evertable.check.saying import say
from evertable.errors import Finding
from evertable.model.facts import Kept

Rule = Callable[[Foreseen], Iterator[Finding]]


def check_plan(seen: Foreseen) -> list[Finding]:
    """Everything that is to be said of a table that Spark would start."""
    if seen.plan.unknown:
        return list(cannot_tell(seen))
    return [finding for rule in RULES for finding in rule(seen)]


@says("PLAN_UNKNOWN")
def cannot_tell(seen: Foreseen) -> Iterator[Finding]:
    """What a query keeps, and when its rows come, could not be found out.

    That is asked of Spark's own planner through calls that belong to one version of Spark. With
    another version, or one that somebody changed, they may be missing. `check` then says what it
    still can, and `run` runs all the same.

    What to do: use the version of PySpark that Evertable names, or report it.
    """
    if seen.plan.unknown:
        yield say(
            seen, "PLAN_UNKNOWN", "cannot be foreseen: Spark's planner does not answer", "note",
            detail=seen.plan.unknown,
            hint="`run` runs it all the same; `evertable doctor` names the versions",
        )  # fmt: skip


@says("WATERMARK_UNUSED")
def watermark_unused(seen: Foreseen) -> Iterator[Finding]:
    """A watermark reaches an operator and does not bound what it keeps.

    A watermark lets Spark forget a group only where the group has the watermarked time itself,
    or a `window()` or `session_window()` of it, among its keys. A cast, `date_trunc`, `to_date`
    or any other expression makes another column of it, which carries no watermark: every group
    is kept for ever. Of a join of two streams each side is bounded by a range of time on both
    columns, or by an equality of the times.

    What to do: group by the column itself or by `window(column, '1 hour')` in the place of
    `date_trunc('HOUR', column)`; join with `b.time BETWEEN a.time AND a.time + INTERVAL 1
    HOUR`; deduplicate by a key that has the time in it, or `dedup: {keys: …, within:
    watermark}`.
    """
    for kept in _kept_for_ever(seen):
        if kept.marked and not _by_plain_keys(kept):
            yield say(
                seen, "WATERMARK_UNUSED",
                f"keeps {_what(kept)} for ever, in spite of its watermark", place=kept.place,
                detail=f"the watermark is on {' and '.join(kept.marked)}; {_why(kept)}",
                hint=_cure(kept),
            )  # fmt: skip


@says("STATE_UNBOUNDED")
def state_unbounded(seen: Foreseen) -> Iterator[Finding]:
    """An operator keeps more and more, and nothing says when something may be forgotten.

    Without a watermark Spark has to remember every key it has ever seen: a window that might
    get one more row, a row that might have a duplicate, a row of a stream that might still find
    its match. The state grows until the disk or the memory is full, and the query dies then,
    perhaps after months.

    What to do: give the stream a `watermark`, and see that the operator is bounded by it (the
    page of WATERMARK_UNUSED says how). A grouping by plain keys (`GROUP BY user`) is bounded by
    how many there are: that is said as a note only, KEYS_FOR_EVER. `evertable check --forecast`
    says how much it will be.
    """
    for kept in _kept_for_ever(seen):
        if not kept.marked and not _by_plain_keys(kept):
            yield say(
                seen, "STATE_UNBOUNDED", f"keeps {_what(kept)} for ever", place=kept.place,
                detail="no watermark reaches it, so that nothing may be forgotten",
                hint=f"give what it reads a `watermark`; {_cure(kept)}",
            )  # fmt: skip


@says("KEYS_FOR_EVER")
def keys_for_ever(seen: Foreseen) -> Iterator[Finding]:
    """A grouping by plain keys keeps a row for each key it has seen.

    That is what such a table means (`SELECT user, count(*) … GROUP BY user`), and it is fine
    where keys are few: brands, countries, machines. It is not where they are made up as time
    goes by: sessions, orders, addresses.

    What to do: nothing where keys are few. Else group by a window of event time too, or keep
    the newest state of each key in a store of your own. `evertable check --forecast` says how
    fast it grows.
    """
    for kept in _kept_for_ever(seen):
        if _by_plain_keys(kept):
            yield say(
                seen, "KEYS_FOR_EVER", f"keeps a row for each {_keys(kept)} it has ever seen",
                "note", kept.place,
                detail="fine where there are few of them",
                hint="group by a window of time too where new ones never end",
            )  # fmt: skip


@says("WATERMARK_IDLE")
def watermark_idle(seen: Foreseen) -> Iterator[Finding]:
    """A watermark has nothing to do, since complete mode keeps everything.

    In complete mode the whole result comes out with every batch, so that Spark may not forget
    any group of it: the watermark neither bounds what is kept nor drops late rows.

    What to do: nothing where the result stays small. Else `output_mode: update` into a sink that
    replaces rows by key, which forgets closed windows.
    """
    if seen.table.output_mode != "complete":
        return
    for kept in growing(seen.plan):
        if kept.marked and kept.kind in ("window", "session"):
            yield say(
                seen, "WATERMARK_IDLE", f"keeps every {kept.kind}, as complete mode has to", "note",
                kept.place,
                detail=f"the watermark on {' and '.join(kept.marked)} has no effect in this mode",
                hint="output_mode: update forgets those that are closed",
            )  # fmt: skip


@says("WATERMARK_TOO_LATE")
def watermark_too_late(seen: Foreseen) -> Iterator[Finding]:
    """A watermark stands after the operator that it should bound.

    `withWatermark` bounds the operators that come after it. One that is written below an
    aggregation, a join or a deduplication sees their results only.

    What to do: put `watermark` on the stream, or call `withWatermark` before the operator.
    """
    for mark in seen.plan.marks:
        if mark.below and growing(seen.plan):
            yield say(
                seen, "WATERMARK_TOO_LATE",
                f'has a watermark on "{mark.column}" after its {" and ".join(mark.below)}',
                detail="it bounds only what comes after it",
                hint="put the watermark on the stream",
            )  # fmt: skip


@says("WATERMARK_ZERO")
def watermark_of_nothing(seen: Foreseen) -> Iterator[Finding]:
    """A watermark with a delay of nothing drops whatever is out of order.

    With `delay: 0 seconds` a row is late as soon as one with a later time has been in a batch
    before it.

    What to do: give a delay as long as rows may come out of order.
    """
    for mark in seen.plan.marks:
        if mark.millis == 0 and seen.plan.kept:
            yield say(
                seen, "WATERMARK_ZERO", f'has a watermark without any delay on "{mark.column}"',
                detail="each row that is older than the newest of the batch before is dropped",
                hint="delay: as long as rows may come out of order",
            )  # fmt: skip


@says("UNION_UNMARKED")
def union_unmarked(seen: Foreseen) -> Iterator[Finding]:
    """Some branches of a union have a watermark and others do not.

    The branches without one do not hold the watermark back: their rows are judged by that of
    the others, and dropped as late if they lag behind.

    What to do: give each stream of the union a `watermark`.
    """
    if seen.plan.unmarked_union and seen.plan.kept:
        yield say(
            seen, "UNION_UNMARKED", "unites streams of which only some have a watermark",
            detail="rows of the others are judged by it, and may be dropped as late",
            hint="give each of them a watermark",
        )  # fmt: skip


@says("FILTER_MOVED")
def filter_moved(seen: Foreseen) -> Iterator[Finding]:
    """Rows that a filter drops do not move the watermark.

    Spark moves a `WHERE` as near to the source as it can, below the watermark too. A row that
    the filter drops is then never seen by the watermark: if only such rows come, nothing closes,
    however late they are.

    What to do: nothing where rows that pass the filter keep coming. Else let the rows through
    and count only those that matter: `count_if(kind = 'click')`, `sum(CASE WHEN … END)`.
    """
    waits = holds_back(seen) or next((k for k in seen.plan.kept if "outer" in k.join), None)
    if seen.plan.filtered and waits:
        yield say(
            seen, "FILTER_MOVED", "filters rows before its watermark sees them", "note",
            detail=f"those that fail `{'`, `'.join(seen.plan.filtered)}` close no "
            f"{waits.kind if waits.kind != 'aggregate' else 'group'}",
            hint="fine while rows that pass keep coming; else filter inside the aggregate",
        )  # fmt: skip


@says("LIMIT_ENDS")
def limit_ends(seen: Foreseen) -> Iterator[Finding]:
    """A LIMIT of a stream is for its whole life.

    After so many rows the table gets no other, for as long as its checkpoint lives; the query
    runs on and reads all the same.

    What to do: leave it out; `evertable preview` shows a few rows.
    """
    for kept in seen.plan.kept:
        if kept.kind == "limit":
            yield say(
                seen, "LIMIT_ENDS", f"gives {kept.limit:,} rows in its whole life", "warning",
                kept.place,
                detail="a LIMIT of a stream is counted over all batches",
                hint="leave LIMIT out; `evertable preview` shows a few rows",
            )  # fmt: skip


@says("DEDUP_AFTER_AGGREGATE")
def dedup_after_aggregate(seen: Foreseen) -> Iterator[Finding]:
    """A deduplication of what was aggregated by the same keys ends in the first batch.

    Spark's check lets it through. Both then share a task, and the RocksDB store takes one for the
    other. Spark's other store, which keeps state in memory, runs it.

    What to do: name that store in the file, or let the aggregation give each key once.
    """
    for kept in seen.plan.kept:
        if kept.collides:
            yield say(
                seen, "DEDUP_AFTER_AGGREGATE",
                "deduplicates what it has aggregated, which the RocksDB store cannot", "error",
                kept.place,
                detail="Spark accepts it and ends in the first batch",
                hint='spark: {spark.sql.streaming.stateStore.providerClass: "org.apache.spark.'
                'sql.execution.streaming.state.HDFSBackedStateStoreProvider"}',
            )  # fmt: skip


@says("PARTITIONS_FROZEN")
def partitions_frozen(seen: Foreseen) -> Iterator[Finding]:
    """State is kept in as many pieces as there are shuffle partitions at the first start.

    The number stays in the checkpoint for good. Spark's own default of 200 makes each batch of a
    small table some hundred times dearer than it has to be; too few cannot be spread over a
    larger cluster later.

    What to do: set `spark: {spark.sql.shuffle.partitions: …}` before the first start, to about
    the number of cores that the table will ever have.
    """
    stateful = any(kept.bound != "constant" for kept in seen.plan.kept)
    unset = not seen.local and not seen.partitions_given
    many = seen.local and seen.plan.partitions > 8 * max(1, seen.slots)
    if stateful and (unset or many):
        yield say(
            seen, "PARTITIONS_FROZEN",
            f"will keep its state in {seen.plan.partitions} partitions for good", "note",
            detail="each of them costs a task and a file in every batch"
            + ("" if unset else f"; there are {seen.slots} cores"),
            hint="set spark.sql.shuffle.partitions before the first start",
        )  # fmt: skip


@says("UPDATE_WITHOUT_KEYS")
def update_without_keys(seen: Foreseen) -> Iterator[Finding]:
    """Update mode into a target that replaces no rows.

    Each change of a group is one more row there: a reader sees all versions of it, the newest
    last, if it can tell.

    What to do: nothing where readers want the changes. Else `embedded` or `postgres`, which
    replace a row by its key, or a Kafka topic that is compacted, with a `key` column.
    """
    if seen.table.output_mode != "update" or not seen.plan.kept:
        return
    for spec, record, promise in seen.targets:
        known = promise not in ("not known", "nothing kept")
        if known and not record.keyed and not record.takes_key:
            yield say(
                seen, "UPDATE_WITHOUT_KEYS",
                f"sends each change as one more row to {spec.format}", "note", spec.location,
                detail="that sink replaces no rows by key",
                hint="embedded and postgres keep one row a key",
            )  # fmt: skip


def _kept_for_ever(seen: Foreseen) -> list[Kept]:
    """In complete mode that is what the table is."""
    if seen.table.output_mode == "complete":
        return []
    return [kept for kept in growing(seen.plan) if not kept.failure]


def _by_plain_keys(kept: Kept) -> bool:
    return kept.kind == "aggregate" and not kept.derived


def _what(kept: Kept) -> str:
    if kept.kind == "join":
        return f"each row of {kept.of}"
    if kept.kind in ("window", "session"):
        return f"each {kept.kind}"
    return f"each {_keys(kept)}"


def _keys(kept: Kept) -> str:
    shown = [f'"{k}"' if k.isidentifier() else k for k in kept.keys if k != "spark_grouping_id"]
    return " and ".join(shown) or "row"


def _why(kept: Kept) -> str:
    if kept.kind == "join":
        return "the join has no range of time that would say when a row finds no match any more"
    return f"what it groups by ({_keys(kept)}) is another column, or one made from it"


def _cure(kept: Kept) -> str:
    if kept.kind == "join":
        return "join on a range of both times, with a watermark on both streams"
    if kept.kind.startswith("dedup"):
        return "dedup within: watermark, or have the event time among the keys"
    return "group by the time itself or a window() of it"


RULES: tuple[Rule, ...] = (
    dedup_after_aggregate,
    watermark_unused,
    state_unbounded,
    watermark_too_late,
    watermark_of_nothing,
    union_unmarked,
    limit_ends,
    *CODE_RULES,
    filter_moved,
    watermark_idle,
    keys_for_ever,
    update_without_keys,
    partitions_frozen,
)
