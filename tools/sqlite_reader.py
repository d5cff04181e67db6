"""A SQLite file, read and never changed, with limits on time and size. It knows no tools.

Three walls, each of which would do: the file is opened with `mode=ro`; an authorizer allows reading tables, functions
that compute, and nothing else (no ATTACH, no PRAGMA, no transaction, no temporary table); and `query_only` is set. One
statement at a time. A progress handler ends what runs too long; SQLite's own limits bound the length of values and
statements. (https://www.sqlite.org/security.html) A single call of a function is one step to the progress handler, and
printf('%.*c', 2000000000, 'x') takes half a minute: so a query runs in a process of its own, which can be killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .errors import ToolError
from .invocation import given_up
from .isolation import ProcessEndedError, ProcessLimits, run_isolated

_MEMORY_MB = 512  # address space of a query's process
_MAX_CELL_CHARS = 300
_MAX_SQL_CHARS = 10_000
_MAX_VALUE_BYTES = 1_000_000
_STEPS = 1_000  # of SQLite's machine between two looks at the clock
_READING = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33))
)
# They load code, reach files, or tell of the machine.
_FORBIDDEN_FUNCTIONS = frozenset(
    ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "sqlite_compileoption_get")
)
# Words of SQL that people name tables by, and that SQLite takes for names in quotes only.
_RESERVED = """add all and as case check column default delete distinct exists from group having in index insert into is
join limit not null on or order primary references select set table then to transaction union unique update using values
when where"""
_LIMITS = {  # sqlite3.h, SQLITE_LIMIT_…; Python 3.10 has no Connection.setlimit
    "SQLITE_LIMIT_LENGTH": _MAX_VALUE_BYTES,
    "SQLITE_LIMIT_SQL_LENGTH": 4 * _MAX_SQL_CHARS,
    "SQLITE_LIMIT_ATTACHED": 0,
    "SQLITE_LIMIT_LIKE_PATTERN_LENGTH": 500,
    "SQLITE_LIMIT_EXPR_DEPTH": 200,
    "SQLITE_LIMIT_COMPOUND_SELECT": 50,
}


class DatabaseError(ToolError):
    """A file that is no SQLite database, a statement that is not allowed, wrong, or takes too long."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view: its columns as `name TYPE`, and what they refer to as `column → table.column`."""

    name: str
    kind: str
    columns: tuple[str, ...]
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """What a query gave: at most as many rows as asked for; `more` tells that there are others.

    Long texts are cut, and marked so; of bytes there is only the number.
    """

    columns: list[str]
    rows: list[list[Any]]
    more: bool


class SqliteReader:
    """The database in the file `path`.

    Each question opens it anew: it sees what others have written in between, and holds no lock on it.

    Raises:
        DatabaseError: no such file, or not a SQLite database.
    """

    def __init__(self, path: Path, *, timeout_s: float = 5.0) -> None:
        self.path = Path(os.path.realpath(path))
        self._timeout_s = timeout_s
        if not self.path.is_file():
            raise DatabaseError(f"there is no database file {path}")

    def tables(self) -> list[Table]:
        """The tables and views, without SQLite's own."""
        with self._opened() as connection:
            found = connection.execute(
                "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite^_%' "
                "ESCAPE '^' ORDER BY rowid"
            ).fetchall()
            return [_table(connection, name, kind) for name, kind in found]

    def query(self, sql: str, max_rows: int) -> Rows:
        """Run one SELECT (or WITH … SELECT, VALUES, EXPLAIN QUERY PLAN).

        Raises:
            DatabaseError: the statement is refused, wrong or takes longer than `timeout_s`.
        """
        _check_statement(sql)
        arguments = {"path": str(self.path), "sql": sql, "max_rows": max_rows, "timeout_s": self._timeout_s}
        limits = ProcessLimits(_MEMORY_MB, self._timeout_s)
        try:
            fields = run_isolated(read_rows, arguments, limits, given_up() or threading.Event())
        except ProcessEndedError as error:
            raise DatabaseError(
                f"the query was stopped: it took too much time or memory; ask for less ({error})"
            ) from None
        found = fields["value"]
        if fields["is_error"] or "error" in found:
            raise DatabaseError(fields["content"] if fields["is_error"] else found["error"])
        return Rows(**found)

    def rows(self, sql: str, max_rows: int) -> Rows:
        """As `query`, in this process."""
        _check_statement(sql)
        with self._opened() as connection:
            connection.set_authorizer(_authorize)
            cursor = connection.execute(sql)
            if cursor.description is None:
                raise DatabaseError("the statement gives no rows; write one SELECT")
            rows = cursor.fetchmany(max_rows + 1)
            shown = [[_cell(value) for value in row] for row in rows[:max_rows]]
            return Rows([str(item[0]) for item in cursor.description], shown, len(rows) > max_rows)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """A connection that cannot write and ends after `timeout_s`; its errors are DatabaseErrors."""
        uri = f"file:{quote(self.path.as_posix())}?mode=ro"
        deadline = time.monotonic() + self._timeout_s
        connection = None
        try:
            connection = sqlite3.connect(uri, uri=True, timeout=min(1.0, self._timeout_s), isolation_level=None)
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")  # views may not call functions with side effects
            if sys.version_info >= (3, 11):
                for name, value in _LIMITS.items():
                    connection.setlimit(getattr(sqlite3, name), value)
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            yield connection
        except (sqlite3.Error, sqlite3.Warning, OverflowError, ValueError, MemoryError) as error:
            raise DatabaseError(self._words(error)) from error
        finally:
            if connection is not None:
                connection.close()

    def _words(self, error: BaseException) -> str:
        text = " ".join(str(error).split())[:300]
        if "interrupted" in text:
            return f"the query took longer than {self._timeout_s:g} s; ask for less, e.g. with WHERE or without a join"
        if "not authorized" in text or "prohibited" in text or "readonly" in text:
            return f"the statement is refused ({text}); the database is read only: write one SELECT"
        if "one statement" in text:
            return "write one statement, not several"
        if "not a database" in text or "malformed" in text or "encrypted" in text:
            return f"{self.path.name} is no SQLite database, is damaged, or is encrypted"
        return f"SQLite: {text}{self._near(text) if 'no such' in text else self._quoted(text)}"

    def _quoted(self, text: str) -> str:
        """How to write a table whose name is a word of SQL, where one stands at the place of a syntax error."""
        found = re.match(r'near "(\w+)": syntax error', text)
        if found is None or found[1].lower() not in _RESERVED.split():
            return ""
        with contextlib.suppress(DatabaseError):
            for table in self.tables():
                if table.name.lower() == found[1].lower():
                    return f"; it is a table too: call again with {_as_written(table.name)}, in double quotes"
        return ""

    def _near(self, text: str) -> str:
        """What there is instead of a table or column that there is not."""
        try:
            tables = self.tables()
        except DatabaseError:
            return ""
        return f"; call again with what there is: {outline(tables) or 'no table'}"


def outline(tables: Sequence[Table], max_chars: int = 600) -> str:
    """The tables with the names of their columns, as "customer(id, name), order(id, total)"."""
    listed = [
        f"{_as_written(table.name)}({', '.join(column.split()[0] for column in table.columns)})" for table in tables
    ]
    shown = ", ".join(listed)
    return shown if len(shown) <= max_chars else ", ".join(table.name for table in tables)[:max_chars]


def _as_written(name: str) -> str:
    """A name as it has to stand in a statement: order is a word of SQL."""
    plain = name.isidentifier() and name.lower() not in _RESERVED.split()
    return name if plain else '"' + name.replace('"', '""') + '"'


def read_rows(path: str, sql: str, max_rows: int, timeout_s: float) -> dict[str, Any]:
    """What runs in the query's process: the fields of Rows, or `error`."""
    try:
        return asdict(SqliteReader(Path(path), timeout_s=timeout_s).rows(sql, max_rows))
    except DatabaseError as error:
        return {"error": str(error)}


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"({len(value):,} bytes)"
    if isinstance(value, str) and len(value) > _MAX_CELL_CHARS:
        return f"{value[:_MAX_CELL_CHARS]}… [cut: {_MAX_CELL_CHARS} of {len(value):,} characters]"
    return value


def _check_statement(sql: str) -> None:
    if not sql.strip():
        raise DatabaseError("the statement is empty; write one SELECT")
    if len(sql) > _MAX_SQL_CHARS:
        raise DatabaseError(f"the statement has {len(sql):,} characters; at most {_MAX_SQL_CHARS:,} are allowed")
    if "\x00" in sql:
        raise DatabaseError("the statement contains a NUL character")


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """SQLite asks this while it prepares a statement: https://www.sqlite.org/c3ref/c_alter_table.html."""
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _table(connection: sqlite3.Connection, name: str, kind: str) -> Table:
    quoted = '"' + name.replace('"', '""') + '"'
    columns = [
        f"{column} {declared}".rstrip() + (" PRIMARY KEY" if key else "")
        for _, column, declared, _, _, key, hidden in connection.execute(f"PRAGMA table_xinfo({quoted})")
        if hidden != 1
    ]
    references = _references(connection.execute(f"PRAGMA foreign_key_list({quoted})").fetchall())
    return Table(name, kind, tuple(columns), references)


def _references(found: Sequence[tuple[Any, ...]]) -> tuple[str, ...]:
    return tuple(f"{row[3]} → {row[2]}.{row[4] or 'its key'}" for row in found)
