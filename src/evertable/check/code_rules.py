"""Rules about what a query computes: clocks, chance, values that do not fit, code of the user's,
and what it reads."""

from __future__ import annotations

from collections.abc import Iterator

from evertable.check.foreseen import Foreseen, key_names
from evertable.check.pages import says
from evertable.check.saying import say
from evertable.errors import Finding

_LARGE = 10 * 1024 * 1024  # bytes; above it Spark sends a static table no more to every task


@says("CLOCK_IN_STATE")
def clock_in_state(seen: Foreseen) -> Iterator[Finding]:
    """A query that keeps state asks the clock.

    `current_timestamp()` is the time at which a batch runs. What it decides differs when the
    same input is computed again: after a long stop, in a backfill, in a test. A watermark never
    looks at it.

    What to do: use a time of the rows. To drop old rows let the watermark do it.
    """
    if seen.plan.asked.clock and seen.plan.kept:
        named = ", ".join(seen.plan.asked.clock)
        yield say(
            seen, "CLOCK_IN_STATE", f"keeps state and asks the clock ({named})",
            detail="the same rows, computed at another time, give another answer",
            hint="use a time of the rows",
        )  # fmt: skip


@says("CHANCE")
def chance(seen: Foreseen) -> Iterator[Finding]:
    """A query asks for chance.

    `rand()`, `uuid()`, `monotonically_increasing_id()` give other values when a batch is
    computed again, as it is after a crash: rows and keys differ then from those that were
    written.

    What to do: derive ids from the row (`sha2(concat(…), 256)`, `xxhash64(…)`).
    """
    if seen.plan.asked.chance:
        named = ", ".join(seen.plan.asked.chance)
        yield say(
            seen, "CHANCE", f"asks for chance ({named})",
            detail="a batch that is computed again after a crash gives other rows",
            hint="derive values from the row, such as xxhash64(…)",
        )  # fmt: skip


@says("VALUE_MAY_FAIL")
def value_may_fail(seen: Foreseen) -> Iterator[Finding]:
    """One value that does not fit ends the table for good.

    Spark 4 computes as the SQL standard says (ANSI): a text that is no number, an index that an
    array does not have, a division by zero raise an error. In a stream the batch with that row is
    repeated at every start, and fails every time. A comparison of a text with a number casts
    the text, too.

    What to do: the `try_…` form, which gives NULL instead; or decode the column with a schema,
    which never raises.
    """
    casts = [risk for risk in seen.plan.risks if risk.instead.startswith(("try_cast", "try_to_"))]
    for risk in seen.plan.risks:
        yield say(
            seen, "VALUE_MAY_FAIL", f"ends at a row for which {risk.text} fails",
            "warning" if risk in casts else "note", risk.place,
            detail="one such row would fail its batch again at every start",
            hint=f"{risk.instead}, which gives NULL there",
        )  # fmt: skip


@says("TIMERS_NEVER_FIRE")
def timers_never_fire(seen: Foreseen) -> Iterator[Finding]:
    """Timers by event time, and no watermark that could fire them.

    A `transformWithState` processor in mode `eventTime` (or a state with `EventTimeTimeout`) is
    started without a word when no stream before it has a watermark. Its timers never fire.

    What to do: give the stream a `watermark`.
    """
    for kept in seen.plan.kept:
        if kept.timers == "event time" and not kept.marked:
            yield say(
                seen, "TIMERS_NEVER_FIRE", "has timers by event time and no watermark",
                detail="nothing ever tells that their time has come",
                hint="give the stream that it reads a `watermark`",
            )  # fmt: skip


@says("TIMERS_WAIT")
def timers_wait(seen: Foreseen) -> Iterator[Finding]:
    """Timers by the clock, in a table that ends by itself.

    A table with `once` or `available_now` ends when there is no more input. Timers that are due
    later fire in the first batch of the next run. (Spark alone would never end: with such timers
    it begins one empty batch after the other.)

    What to do: nothing if the table runs often enough; else timers by event time, or a trigger
    that goes on.
    """
    for kept in seen.plan.kept:
        if kept.timers == "processing time" and seen.table.trigger.ends:
            yield say(
                seen, "TIMERS_WAIT", "has timers by the clock, and ends before they are due",
                "note", detail="they fire in a later run, in its first batch",
                hint="use event time, or a trigger that goes on",
            )  # fmt: skip


@says("CODE_KEEPS_FOR_EVER")
def code_keeps_for_ever(seen: Foreseen) -> Iterator[Finding]:
    """A stateful function of yours, in which nothing ever forgets a key.

    Its source was read, not run: no state has a time to live, it sets no timer or timeout, and
    removes or clears nothing. It keeps a state for each key it has ever seen.

    What to do: `ttlDurationMs` for `getValueState` and its like, a timer that clears the state,
    or `state.remove()`. Nothing where keys are few.
    """
    for kept in seen.plan.kept:
        code = kept.code
        if code is None or code.timers or code.removes:
            continue
        if code.states and set(code.states) == set(code.ageing):
            continue
        kept_ones = ", ".join(s for s in code.states if s not in code.ageing) or "its state"
        yield say(
            seen, "CODE_KEEPS_FOR_EVER",
            f"keeps {kept_ones} of each {key_names(kept.keys)} for ever, in your code", "note",
            detail="it has no time to live, and nothing clears or removes it",
            hint="give it a ttlDurationMs or a timer, unless there are few keys",
        )  # fmt: skip


@says("ONE_BATCH_AT_A_TIME")
def one_batch_at_a_time(seen: Foreseen) -> Iterator[Finding]:
    """A pandas function over groups sees the rows of one batch only.

    `groupBy().applyInPandas()` on a stream is accepted and computed for each batch by itself: a
    group that comes in two batches is two groups to it.

    What to do: `applyInPandasWithState` or `transformWithState`, which keep state between
    batches.
    """
    for name in seen.plan.by_batch:
        yield say(
            seen, "ONE_BATCH_AT_A_TIME", f"groups with {name}, which sees one batch at a time",
            detail="a group whose rows come in two batches is computed twice, by halves",
            hint="use applyInPandasWithState or transformWithState",
        )  # fmt: skip


@says("SOURCE_FORGETS")
def source_forgets(seen: Foreseen) -> Iterator[Finding]:
    """A stream that cannot be read again.

    What a socket gave is gone: the batch that runs when a process is killed cannot be computed
    again, and its rows are lost. All other sources are asked for the same rows once more.

    What to do: for anything but a try, put files or Kafka between.
    """
    for stream in seen.lossy:
        yield say(
            seen, "SOURCE_FORGETS", f'reads stream "{stream}", which cannot be read again',
            "note", detail="rows of a batch that a crash interrupts are lost",
            hint="read files or Kafka where no row may be lost",
        )  # fmt: skip


@says("STREAM_TWICE")
def stream_twice(seen: Foreseen) -> Iterator[Finding]:
    """A query reads one stream more than once.

    Each use is a source of its own, with a name of its own (`bids`, `bids_2`): its records are
    fetched and decoded that often. A self-join needs it. A union or a view that is named twice
    often does not.

    What to do: one pass with `CASE`, `FILTER (WHERE …)` or `GROUPING SETS`, where that says the
    same.
    """
    for stream in seen.twice:
        yield say(
            seen, "STREAM_TWICE", f'reads stream "{stream}" more than once', "note",
            detail="each use is a source of its own: fetched, decoded and kept in mind that often",
            hint="fine for a self-join; else one pass with FILTER (WHERE …) or CASE",
        )  # fmt: skip


@says("STATIC_READ_AGAIN")
def static_read_again(seen: Foreseen) -> Iterator[Finding]:
    """A large static table is read in every batch.

    Spark keeps nothing of a static table between batches: its files are listed at the start and
    read again in each batch that joins it. Up to 10 MB it is sent to every task; above that both
    sides are moved and sorted, in each batch.

    What to do: keep it small (only the columns and rows that are needed), keep it in a columnar
    format, or let batches be fewer and larger.
    """
    if seen.plan.largest_static > _LARGE:
        megabytes = seen.plan.largest_static / 1e6
        yield say(
            seen, "STATIC_READ_AGAIN", f"reads a static table of {megabytes:,.0f} MB in each batch",
            "note", detail="it is too large to be sent to every task, and nothing of it is kept",
            hint="keep it small, in parquet, or make batches fewer",
        )  # fmt: skip


CODE_RULES = (
    value_may_fail,
    timers_never_fire,
    clock_in_state,
    chance,
    one_batch_at_a_time,
    code_keeps_for_ever,
    timers_wait,
    source_forgets,
    stream_twice,
    static_read_again,
)
