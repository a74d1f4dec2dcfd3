"""A source's rows: a format that Spark knows, a catalog table, or a class of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evertable.errors import Finding, Refused
from evertable.location import Location
from evertable.model.pipeline import Static, Stream
from evertable.spark.session import make_active
from evertable.spark.shipping import ship
from evertable.user_code import load_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader


def load(
    reader: DataFrameReader | DataStreamReader,
    session: SparkSession,
    entry: Stream | Static,
    options: Mapping[str, str],
    root: str,
    *paths: str,
) -> DataFrame:
    """The rows of a stream or a static; `reader` is Spark's for the one or the other."""
    by_lower = {option.lower(): value for option, value in options.items()}
    if entry.format == "table":
        rest = {o: v for o, v in options.items() if o.lower() != "table"}
        return reader.options(**rest).table(by_lower["table"])
    if entry.format == "python":
        what = f'{type(entry).__name__.lower()} "{entry.name}"'
        given = entry.function or load_function(by_lower["class"], root, entry.location)
        name = registered(session, given, root, what, entry.location)
        rest = {o: v for o, v in options.items() if o.lower() != "class"}
        return reader.format(name).options(**rest).load()
    reader = reader.format(entry.format).options(**options)
    return reader.load(list(paths)) if paths else reader.load()  # type: ignore[arg-type]


def registered(
    session: SparkSession, given: Any, root: str, what: str, place: Location | None
) -> str:
    """The name by which Spark knows a data source of the user's from now on."""
    from pyspark.sql.datasource import DataSource

    if not (isinstance(given, type) and issubclass(given, DataSource)):
        raise Refused(
            Finding(
                "SOURCE_INVALID",
                f"the class of {what} is no data source",
                place,
                detail=f"{getattr(given, '__name__', given)} does not extend "
                "pyspark.sql.datasource.DataSource",
                hint="a data source has name(), schema() and a streamReader()",
            )
        )
    ship(session, root)
    make_active(session)  # where Spark looks such names up, now and when the query starts
    session.dataSource.register(given)
    return given.name()
