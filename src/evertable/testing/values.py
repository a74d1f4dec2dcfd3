"""Rows that a test writes, checked against their columns; and values for a test to read."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evertable.errors import Finding, Refused
from evertable.model.names import did_you_mean
from evertable.testing.times import Day

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def typed(
    rows: Iterable[Mapping[str, Any]], schema: StructType, day: Day, what: str
) -> list[dict[str, Any]]:
    """Each row with all columns and Spark's own types; Refused where a value does not fit."""
    fields = {field.name: field.dataType for field in schema.fields}
    result = []
    for number, row in enumerate(rows, 1):
        for name in row:
            if name not in fields:
                raise _refused(
                    f'{what}, row {number}: there is no column "{name}"',
                    did_you_mean(name, fields) or f"columns: {', '.join(fields)}",
                )
        where = f"{what}, row {number}: column"
        result.append(
            {name: _typed(row.get(name), kind, day, f'{where} "{name}"') for name, kind in
             fields.items()}
        )  # fmt: skip
    return result


def table_of(rows: Sequence[Mapping[str, Any]], schema: StructType) -> pa.Table:
    """Checked rows, as Arrow."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema, timezone="UTC")
    columns = [
        pa.array([row[field.name] for row in rows], type=field.type, from_pandas=False)
        for field in arrow
    ]
    return pa.Table.from_arrays(columns, schema=arrow)


def _typed(value: Any, kind: DataType, day: Day, where: str) -> Any:
    if value is None:
        return None
    name = kind.typeName()
    wrong = _refused(f"{where} is {kind.simpleString()}, and {value!r} is not")
    if name in _BITS:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong
        if not -(1 << _BITS[name] - 1) <= value < 1 << _BITS[name] - 1:
            raise _refused(f"{where} is {kind.simpleString()}, and {value} does not fit")
        return value
    if name in ("float", "double"):
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong
        return float(value)
    if name.startswith("decimal"):
        return _decimal(value, kind, wrong)
    if name in ("string", "char", "varchar"):
        if not isinstance(value, str):
            raise wrong
        return value
    if name == "boolean":
        if not isinstance(value, bool):
            raise wrong
        return value
    if name == "binary":
        if not isinstance(value, str | bytes):
            raise wrong
        return value.encode() if isinstance(value, str) else value
    if name in ("timestamp", "timestamp_ntz"):
        return _moment(value, name, day, wrong)
    if name == "date":
        return _date(value, wrong)
    return _nested(value, kind, day, where, wrong)


def _nested(value: Any, kind: Any, day: Day, where: str, wrong: Refused) -> Any:
    name = kind.typeName()
    if name == "struct":
        if not isinstance(value, Mapping):
            raise wrong
        return typed([value], kind, day, where)[0]
    if name == "array":
        if not isinstance(value, list | tuple):
            raise wrong
        return [_typed(v, kind.elementType, day, where) for v in value]
    if name == "map":
        if not isinstance(value, Mapping):
            raise wrong
        return [
            (_typed(k, kind.keyType, day, where), _typed(v, kind.valueType, day, where))
            for k, v in value.items()
        ]
    return value


def _decimal(value: Any, kind: Any, wrong: Refused) -> decimal.Decimal:
    if isinstance(value, bool | float):
        raise wrong
    try:
        exact = decimal.Decimal(value)
        fitted = exact.quantize(decimal.Decimal(1).scaleb(-kind.scale))
    except (decimal.InvalidOperation, TypeError, ValueError):
        raise wrong from None
    if fitted != exact or len(fitted.as_tuple().digits) > kind.precision:
        raise wrong
    return fitted


def _moment(value: Any, name: str, day: Day, wrong: Refused) -> dt.datetime:
    if isinstance(value, str):
        try:
            value = day.moment(value)
        except ValueError:
            raise wrong from None
    if not isinstance(value, dt.datetime):
        raise wrong
    if name == "timestamp_ntz":
        return value.replace(tzinfo=None)
    return value if value.tzinfo else value.replace(tzinfo=dt.UTC)


def _date(value: Any, wrong: Refused) -> dt.date:
    if isinstance(value, str):
        try:
            value = dt.date.fromisoformat(value)
        except ValueError:
            raise wrong from None
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise wrong
    return value


def readable(value: Any, day: Day) -> Any:
    """A value as tests write it: times short, everything else as Python has it."""
    if isinstance(value, dt.datetime):
        return day.shown(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float):
        return float(f"{value:.12g}")  # the order of additions is not the test's business
    if isinstance(value, Mapping):
        return {k: readable(v, day) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [readable(v, day) for v in value]
    return value


def _refused(message: str, hint: str = "") -> Refused:
    text = f"{message}; {hint}" if hint else message  # a test shows the message alone
    return Refused(Finding("ROW_INVALID", text))
