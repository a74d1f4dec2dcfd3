"""What a query keeps, read with Spark's own readers of state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def rows(spark: SparkSession, checkpoint: str) -> list[dict[str, Any]]:
    """Keys and values of every operator, as of the newest batch. With several operators, sides of
    a join or variables, `operator` says whose a row is."""
    operators = spark.read.format("state-metadata").load(checkpoint).collect()
    parts = list(dict.fromkeys(part for row in operators for part in _parts(row)))
    found = []
    for label, options in parts:
        read = spark.read.format("statestore").options(**dict(options)).load(checkpoint)
        for row in read.drop("partition_id").collect():
            flat = _flat(row.asDict(recursive=True))
            found.append({"operator": label, **flat} if len(parts) > 1 else flat)
    return found


def _parts(operator: Row) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """A name, and the options to read it with."""
    number, name = str(operator["operatorId"]), operator["operatorName"]
    if name == "symmetricHashJoin":
        for side in ("left", "right"):
            yield side, (("operatorId", number), ("joinSide", side))
        return
    properties = json.loads(operator["operatorProperties"] or "{}")
    variables = properties.get("stateVariables", [])
    for variable in variables:
        label = variable["stateName"]
        if not label.startswith("$"):  # Spark's own, such as timers
            yield label, (("operatorId", number), ("stateVarName", label))
    if not variables:
        yield name, (("operatorId", number),)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Key and value side by side, as they are structs of columns."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and name in ("key", "value"):
            flat |= value
        else:
            flat[name] = value
    return flat
