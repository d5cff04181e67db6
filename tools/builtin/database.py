"""show_tables and query_database: one SQLite file, read only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..definition import Tool, tool
from ..sqlite_reader import DatabaseError, Rows, SqliteReader, outline

_MAX_ROWS = 50


def database_tools(path: Path, *, timeout_s: float = 5.0) -> list[Tool]:
    """Return show_tables and query_database for the SQLite file `path`; raises ToolError if it is none.

    Args:
        timeout_s: seconds after which SQLite is made to stop.
    """
    reader = SqliteReader(path, timeout_s=timeout_s)
    built = outline(reader.tables())

    def show_tables(
        table: Annotated[str, "A name, e.g. orders; empty for all"] = "",
    ) -> dict[str, Any]:
        """Show how the tables of the database are built. Returns their columns, types and references."""
        return _described(reader, table.strip())

    def query_database(
        sql: Annotated[str, "One SELECT, e.g. SELECT name, count(*) FROM orders GROUP BY name"],
        max_rows: Annotated[int, Field(ge=1, le=_MAX_ROWS)] = 20,
    ) -> dict[str, Any]:
        """Ask the database in SQL (SQLite, read only). Returns columns and rows."""
        return _as_value(reader.query(sql, max_rows))

    # With the names of the columns a small model's first statement is right; with those of the tables alone it made
    # others up.
    about = f"{(query_database.__doc__ or '').strip()} Tables: {built or 'none'}."
    return [
        tool(group="database")(show_tables),
        tool(group="database", strict={"sql"}, description=about, timeout_s=timeout_s + 10)(query_database),
    ]


def _described(reader: SqliteReader, wanted: str) -> dict[str, Any]:
    tables = reader.tables()
    found = [table for table in tables if not wanted or table.name.lower() == wanted.lower()]
    if wanted and not found:
        raise DatabaseError(f"there is no table {wanted[:100]!r}; the tables are {', '.join(t.name for t in tables)}")
    return {
        "tables": [
            {
                "name": table.name,
                **({"kind": table.kind} if table.kind != "table" else {}),
                "columns": list(table.columns),
            }
            | ({"references": list(table.references)} if table.references else {})
            for table in found
        ]
    }


def _as_value(found: Rows) -> dict[str, Any]:
    value: dict[str, Any] = {"columns": found.columns, "rows": found.rows}
    if found.more:
        value["cut"] = f"first {len(found.rows)} rows; there are more: count them with count(*), or narrow with WHERE"
    return value
