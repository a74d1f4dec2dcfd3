"""Which row a new one replaces, and which of two versions of a row stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evertable.errors import Finding, Refused
from evertable.model.pipeline import Table
from evertable.sinks.registry import capabilities
from evertable.sinks.versions import time_of
from evertable.spark import planner
from evertable.spark.errors import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def key_of(frame: DataFrame, table: Table) -> list[str]:
    """What a row of an update table is replaced by: its `key`, else what it is grouped by."""
    records = [capabilities(spec) for spec in table.sinks]
    needed = any(record.keyed for record in records)
    if table.output_mode != "update" or not (needed or any(r.takes_key for r in records)):
        return []
    if not needed and not table.key:
        return planner.group_keys(frame) or []
    what = f'table "{table.name}"'
    grouped = planner.group_keys(frame)
    if table.key:
        missing = [k for k in table.key if k not in frame.columns]
        if missing:
            raise Refused(
                Finding(
                    "KEY_UNKNOWN",
                    f'{what} has key "{missing[0]}", which is no column of it',
                    table.location,
                    detail=f"columns: {', '.join(frame.columns)}",
                )
            )
        if grouped is not None and set(grouped) != set(table.key):
            raise Refused(
                Finding(
                    "KEY_DIFFERS",
                    f"{what} has another key than its query groups by",
                    table.location,
                    detail=f"key: {', '.join(table.key)}; grouped by: {', '.join(grouped)}. Rows "
                    "of different groups would replace each other, or old ones would stay",
                    hint="leave `key` out: it is what the query groups by",
                )
            )
        return list(table.key)
    if grouped is not None and planner.filters_groups(frame):
        raise Refused(
            Finding(
                "FILTER_AFTER_GROUPING",
                f"{what} filters its groups, in update mode",
                table.location,
                detail="update tells of groups that changed; one that no longer passes the filter "
                "is not told of, and its old row would stay",
                hint="filter when reading, or use output_mode: complete",
            )
        )
    keys = grouped
    if keys is None:
        raise Refused(
            Finding(
                "KEY_MISSING",
                f"{what} is in update mode, and nothing says which row a new one replaces",
                table.location,
                detail="the key is what the query groups by, if all of it comes out of the query",
                hint="name it: `key: [column]`, or use output_mode: append",
            )
        )
    return keys


def versions_fit(frame: DataFrame, table: Table) -> None:
    """`order_by`, `delete_when` and `retain` name what the rows have."""
    what = f'table "{table.name}"'
    if table.order_by is not None and table.order_by not in frame.columns:
        raise Refused(
            Finding(
                "KEY_UNKNOWN",
                f'{what} is ordered by "{table.order_by}", which is no column of it',
                table.location,
                detail=f"columns: {', '.join(frame.columns)}",
            )
        )
    if table.order_by is not None:
        kind = frame.schema[table.order_by].dataType.typeName()
        if kind in ("struct", "array", "map", "variant", "binary", "boolean"):
            raise Refused(
                Finding(
                    "VALUE_INVALID",
                    f'{what} is ordered by "{table.order_by}", which is {kind}',
                    table.location,
                    hint="order_by takes a number, a text or a time",
                )
            )
    if table.delete_when is not None:
        try:
            kind = frame.selectExpr(f"({table.delete_when}) AS x").schema["x"].dataType.typeName()
        except Exception as e:
            finding = explain(e, f"delete_when of {what}", known=frame.columns)
            raise Refused(finding.at(table.location)) from e
        if kind != "boolean":
            raise Refused(
                Finding(
                    "VALUE_INVALID",
                    f"delete_when of {what} is {kind}, and has to be true or false",
                    table.location,
                    hint="such as delete_when: \"op = 'd'\"",
                )
            )
    if table.retain is not None:
        found = time_of(frame.schema, table.retain)
        if isinstance(found, str):
            raise Refused(
                Finding(
                    "RETAIN_COLUMN",
                    f"{what} cannot tell how old its rows are: {found}",
                    table.location,
                )
            )
