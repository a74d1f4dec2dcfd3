"""The table that rows go to: what is there, whether it fits, and what has to be made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evertable.errors import Finding
from evertable.model.pipeline import OutputMode, Table
from evertable.sinks.postgres.client import About, Client
from evertable.sinks.postgres.columns import Column, Existing, fits, quoted, same_form

OLDEST = 150_000  # NULLS NOT DISTINCT: NULL is a key like any other


@dataclass(frozen=True, slots=True)
class Name:
    """A table in its schema."""

    schema: str
    table: str

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True)
class There:
    """What the catalog says of a table; no columns where there is none."""

    columns: tuple[Existing, ...] = ()
    unique: tuple[frozenset[str], ...] = ()  # sets of columns of which no two rows have the same

    def column(self, name: str) -> Existing | None:
        return next((c for c in self.columns if c.name == name), None)


def find(client: Client, text: str, about: About) -> tuple[Name, There]:
    """The table that an option names, as it is written: letter for letter."""
    schema, dot, table = text.partition(".")
    if any(len(part.encode()) > 63 for part in (schema, table)):
        raise _refused(
            "SINK_COLUMNS", f'{about.what} names "{text}", and Postgres cuts names off at 63 bytes',
            about, hint="give `table:` a shorter name",
        )  # fmt: skip
    row = client.row(
        "SELECT current_setting('server_version_num')::int, coalesce(n.nspname, ''), "
        "current_schema() FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = $1",
        schema if dot else "",
    )
    assert row is not None
    version, found, current = row
    if version < OLDEST:
        raise _refused("SINK_TOO_OLD", f"{about.what} needs Postgres 15 or newer", about)
    if dot and not found:
        raise _refused(
            "TARGET_GONE", f'{about.what} names schema "{schema}", which does not exist', about,
            hint=f"CREATE SCHEMA {quoted(schema)}, or correct `table`",
        )  # fmt: skip
    name = Name(schema, table) if dot else Name(current or "public", schema)
    return name, look(client, name)


def look(client: Client, name: Name) -> There:
    columns = client.rows(
        "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), t.typname::text, "
        "t.typtype = 'e', a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' "
        "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        "JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p') AND a.attnum > 0 "
        "AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
        name.schema,
        name.table,
    )
    unique = client.rows(
        "SELECT string_agg(a.attname::text, e'\\n') FROM pg_index i "
        "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1]) "
        "WHERE n.nspname = $1 AND c.relname = $2 AND i.indisunique AND i.indisvalid "
        "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL "
        "GROUP BY i.indexrelid, i.indnullsnotdistinct "
        "HAVING i.indnullsnotdistinct OR bool_and(a.attnotnull)",
        name.schema,
        name.table,
    )
    return There(
        tuple(Existing(*row) for row in columns),
        tuple(frozenset(names.split("\n")) for (names,) in unique),
    )


def misfit(
    table: Table,
    about: About,
    name: Name,
    there: There,
    columns: Sequence[Column],
    key: Sequence[str],
    mode: OutputMode,
) -> Finding | None:
    """Why a table that is there cannot take the rows."""
    wanted = {c.name: c for c in columns}
    missing = [c for c in columns if there.column(c.name) is None]
    wrong = [c for c in columns if (e := there.column(c.name)) and not fits(c, e)]
    required = [e.name for e in there.columns if e.required and e.name not in wanted]
    if missing and table.on_schema_change != "add_columns":
        added = ", ".join(f"ADD COLUMN {quoted(c.name)} {c.made}" for c in missing)
        return _misfit(
            about, name, f'has no column "{missing[0].name}"',
            f"ALTER TABLE {name.sql} {added}; or on_schema_change: add_columns",
        )  # fmt: skip
    if wrong:
        found = there.column(wrong[0].name)
        return _misfit(
            about, name,
            f'has column "{wrong[0].name}" as {found.type if found else ""}, and the query makes '
            f"{wrong[0].made}",
            "cast it in the query, or alter the table",
        )  # fmt: skip
    if required:
        return _misfit(
            about, name, f'wants a value for "{required[0]}", which the query does not make',
            "give that column a default, or add it to the query",
        )  # fmt: skip
    if mode == "update" and key and frozenset(key) not in there.unique:
        names = ", ".join(quoted(k) for k in key)
        return _misfit(
            about, name, f"has no unique index on its key ({', '.join(key)})",
            f"CREATE UNIQUE INDEX ON {name.sql} ({names}) NULLS NOT DISTINCT",
        )  # fmt: skip
    return None


def steps(
    name: Name, there: There, columns: Sequence[Column], key: Sequence[str], mode: OutputMode
) -> list[str]:
    """What has to be said to Postgres so that the table is there and has every column."""
    if there.columns:
        return [
            f"ALTER TABLE {name.sql} ADD COLUMN {quoted(c.name)} {c.made}"
            for c in columns
            if there.column(c.name) is None
        ]
    body = ", ".join(f"{quoted(c.name)} {c.made}" for c in columns)
    made = [f"CREATE TABLE {name.sql} ({body})"]
    if mode == "update" and key:
        names = ", ".join(quoted(k) for k in key)
        made.append(f"CREATE UNIQUE INDEX ON {name.sql} ({names}) NULLS NOT DISTINCT")
    return made


def copies_directly(there: There, columns: Sequence[Column]) -> bool:
    """Whether rows can be appended as they are sent, with nothing to cast."""
    return all((e := there.column(c.name)) and same_form(c, e) for c in columns)


def _misfit(about: About, name: Name, why: str, hint: str) -> Finding:
    return Finding(
        "SINK_SCHEMA",
        f'table "{about.table}" does not fit its target: {name} {why}',
        about.place,
        hint=hint,
    )


def _refused(code: str, message: str, about: About, hint: str = "") -> Exception:
    from evertable.errors import Refused

    return Refused(Finding(code, message, about.place, hint=hint))
