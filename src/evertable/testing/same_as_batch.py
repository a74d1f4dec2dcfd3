"""Whether a stream gives what one batch query over the same input gives; if not, why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evertable.model.facts import Asked
from evertable.run.analysis import table_session
from evertable.sources.registry import SOURCES
from evertable.spark import planner
from evertable.spark import session as spark_session
from evertable.spark.arrow import collected
from evertable.spark.frames import Frames
from evertable.spark.schemas import SchemaStore
from evertable.testing.kept import flat
from evertable.testing.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from evertable.testing.table_under_test import TableUnderTest


def assert_same_as_batch(table: TableUnderTest, *, ignore: Sequence[str] = ()) -> None:
    """Runs what is left, lets time end so that every window closes, and compares with one batch
    query over all that was pushed. Columns in `ignore` are left out. No rows can come after it.
    """
    pipeline = table.pipeline
    frame = table.frame
    if table.definition.output_mode == "update" and planner.windows_for_ever(frame):
        raise AssertionError(
            f'table "{table.name}" groups by windows that are never over: no stream that it reads '
            "has a watermark, so each window is kept for ever"
        )
    pipeline.run_until_idle()
    pipeline.end_time()
    asked = planner.asked(planner.query_of(frame))
    expected, again = (_rows(table, ignore) for _ in range(2))
    found = _without(_newest(table, frame), ignore)
    if expected == again and found == expected:
        return
    causes = list(_causes(table, asked, deterministic=expected == again))
    lines = found.explained(expected) if expected == again else expected.explained(again)
    raise AssertionError(
        "\n  ".join(
            [
                f'table "{table.name}" is not what one batch query over the same input gives',
                *(f"cause: {cause}" for cause in causes),
                *lines,
            ]
        )
    )


def batch_frames(table: TableUnderTest) -> tuple[Frames, DataFrame]:
    """The table's query over all that was pushed, as a batch DataFrame; and what built it."""
    pipeline = table.pipeline
    confs = spark_session.all_confs(dict(pipeline.model.spark), logs=pipeline.storage.logs)
    session = table_session(pipeline.spark, confs, table.definition)
    frames = Frames(
        session,
        pipeline.model,
        SOURCES,
        SchemaStore(pipeline.storage.schemas, keep=False),
        named=False,
        bounded=pipeline.sources.bounded,
        opened=lambda session, stream, name: pipeline.sources.bounded(session, stream, {}),
    )
    return frames, frames.of_table(table.definition)


def _rows(table: TableUnderTest, ignore: Sequence[str]) -> Rows:
    _, frame = batch_frames(table)
    return _without(Rows(flat(collected(frame), frame.schema), table.pipeline.day), ignore)


def _newest(table: TableUnderTest, frame: DataFrame) -> Rows:
    """What the table has; of updates without a key the newest one of each group."""
    rows = table.rows_in_order()
    if table.keyed:
        return Rows(rows, table.pipeline.day)
    keys = planner.group_keys(frame)
    if keys is None:
        return Rows(rows, table.pipeline.day)
    of_key: dict[str, dict[str, Any]] = {}
    for row in rows:
        of_key[repr([v for n, v in row.items() if _is_of(n, keys)])] = row
    return Rows(of_key.values(), table.pipeline.day)


def _is_of(column: str, keys: Sequence[str]) -> bool:
    return column in keys or column.removesuffix("_start").removesuffix("_end") in keys


def _without(rows: Rows, ignore: Sequence[str]) -> Rows:
    kept = ({n: v for n, v in row.items() if n not in ignore} for row in rows)
    return Rows(kept, rows.day)


def _causes(table: TableUnderTest, asked: Asked, *, deterministic: bool) -> list[str]:
    causes = []
    if asked.clock:
        causes.append(
            f"its query asks the clock ({', '.join(asked.clock)}), so that the answer depends on "
            "when it is computed; use a time of the rows"
        )
    if asked.chance:
        causes.append(f"its query asks for chance ({', '.join(asked.chance)})")
    if not deterministic and asked.python:
        causes.append(
            f"your function {', '.join(asked.python)} is not deterministic: the same input, "
            "computed twice, gave two answers; after a crash a batch is computed again"
        )
    late = table.dropped_by_watermark
    if late:
        causes.append(
            f"{late} rows or groups came later than the watermark and were dropped; raise its "
            "delay, or test with less disorder"
        )
    if not causes and not deterministic:
        causes.append("the same input, computed twice as a batch, gave two answers")
    return causes
