"""query_database reads, and does nothing else: no write, no other file, no setting, no query without an end."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from pathlib import Path

import pytest
from laploop.tools import Tool, ToolError, ToolResult
from laploop.tools.builtin.database import database_tools
from laploop.tools.sqlite_reader import DatabaseError, SqliteReader, Table, outline


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop #1?.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, 城市 TEXT);
            CREATE TABLE "order" (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer(id), total REAL);
            CREATE VIEW spent AS SELECT name, sum(total) AS total FROM customer
                JOIN "order" ON customer_id = customer.id GROUP BY name;
            CREATE TABLE note (text TEXT, picture BLOB);
            INSERT INTO customer VALUES (1, 'Ann', '北京'), (2, 'Bo', 'Paris');
            INSERT INTO "order" VALUES (1, 1, 9.5), (2, 1, 20), (3, 2, 1);
            INSERT INTO note VALUES (replace(hex(zeroblob(500)), '00', 'xy'), x'00ff');
            CREATE TRIGGER t AFTER INSERT ON note BEGIN DELETE FROM customer; END;"""
        )
    connection.close()
    return path


def tools(path: Path, timeout_s: float = 5.0) -> dict[str, Tool]:
    return {item.name: item for item in database_tools(path, timeout_s=timeout_s)}


def ask(path: Path, sql: str, timeout_s: float = 5.0) -> ToolResult:
    return tools(path, timeout_s)["query_database"].invoke({"sql": sql, "max_rows": 5})


REFUSED = [
    # writing
    "INSERT INTO customer VALUES (3, 'x', 'y')", "UPDATE customer SET name = 'x'", "DELETE FROM customer",
    "REPLACE INTO customer VALUES (1, 'x', 'y')", "DROP TABLE customer", "CREATE TABLE x (y)",
    "CREATE TEMP TABLE x (y)",
    "CREATE TEMP VIEW x AS SELECT 1", "CREATE TEMP TRIGGER x AFTER DELETE ON note BEGIN SELECT 1; END",
    "ALTER TABLE customer RENAME TO x", "ALTER TABLE customer ADD COLUMN z", "CREATE INDEX i ON customer (name)",
    "REINDEX", "ANALYZE", "VACUUM", "VACUUM INTO '{out}'", "INSERT INTO note SELECT 1, 2 RETURNING *",
    "DELETE FROM customer RETURNING name", "WITH x AS (SELECT 1) DELETE FROM customer",
    "WITH x AS (SELECT 1) INSERT INTO note SELECT 1, 2", "CREATE VIRTUAL TABLE v USING fts5(x)",
    "EXPLAIN DELETE FROM customer", "INSERT INTO sqlite_master VALUES (1,2,3,4,5)", "CREATE TABLE x AS SELECT 1",
    # other files
    "ATTACH '{out}' AS other", "ATTACH DATABASE 'file:{out}?mode=rwc' AS o", "DETACH main", "ATTACH ':memory:' AS m",
    "SELECT load_extension('{out}')", "SELECT readfile('/etc/passwd')", "SELECT writefile('{out}', 'x')",
    "SELECT edit('x')", "SELECT fts3_tokenizer('simple')",
    # settings and transactions
    "PRAGMA query_only = OFF", "PRAGMA journal_mode = WAL", "PRAGMA user_version = 7", "PRAGMA writable_schema = ON",
    "PRAGMA trusted_schema = ON", "PRAGMA table_info(customer)", "PRAGMA database_list",
    "PRAGMA temp_store_directory = '/'",
    "SELECT * FROM pragma_database_list", "SELECT * FROM pragma_query_only", "PRAGMA key = 'x'", "PRAGMA mmap_size = 1",
    "BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "COMMIT", "ROLLBACK", "SAVEPOINT x", "RELEASE x", "END",
    # several statements, and none
    "SELECT 1; DELETE FROM customer", "SELECT 1; SELECT 2", "; DELETE FROM customer", "SELECT 1;; DROP TABLE note",
    "/* SELECT */ DELETE FROM customer", "-- SELECT 1\nDELETE FROM customer", "", "   ", ";", "-- nothing", "/* x",
    "SELECT 1\x00; DROP TABLE customer", "SELECT '", "SELEC 1", "SELECT * FROM nowhere", "SELECT nothing FROM customer",
    "SELECT ?", "SELECT :x", "SELECT 1 " + "+ 1" * 5_000, "SELECT " + "(" * 300 + "1" + ")" * 300,
]  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_refused_and_nothing_changed(database: Path, tmp_path: Path, sql: str) -> None:
    """Where the walls stand: what a query's process calls (a process for each would be half a minute of tests)."""
    before = hashlib.sha256(database.read_bytes()).hexdigest()
    with pytest.raises(DatabaseError) as caught:
        SqliteReader(database).rows(sql.replace("{out}", str(tmp_path / "out.db")), 5)
    assert "\n" not in str(caught.value)
    assert hashlib.sha256(database.read_bytes()).hexdigest() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == [database.name]


@pytest.mark.parametrize("sql", REFUSED[::9])
def test_refused_by_the_tool_too(database: Path, tmp_path: Path, sql: str) -> None:
    before = hashlib.sha256(database.read_bytes()).hexdigest()
    result = ask(database, sql.replace("{out}", str(tmp_path / "out.db")))
    assert result.is_error and result.content.startswith("query_database: ") and "\n" not in result.content
    assert hashlib.sha256(database.read_bytes()).hexdigest() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == [database.name]


RUNAWAY = [
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n WHERE x < 0",
    "WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n LIMIT 100000) "
    "SELECT sum(a.x * b.x * c.x) FROM n a, n b, n c",
    "WITH RECURSIVE n(x) AS (VALUES ('a') UNION ALL SELECT x || x FROM n) SELECT length(x) FROM n WHERE x = ''",
    "SELECT randomblob(2000000000)", "SELECT zeroblob(2000000000)", "SELECT hex(zeroblob(900000000))",
    "SELECT group_concat(x, printf('%.*c', 100000, 'x')) FROM (WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL "
    "SELECT x + 1 FROM n) SELECT x FROM n)",
    "SELECT printf('%.*c', 2000000000, 'x')", "SELECT instr(zeroblob(900000), zeroblob(400000) || 'x')",
    "SELECT length(replace(hex(zeroblob(450000)), hex(zeroblob(200000)) || '1', ''))",
    "SELECT length(trim(hex(zeroblob(400000)), hex(randomblob(400000))))",
    "SELECT replace(hex(zeroblob(100000)), '0', hex(zeroblob(100000)))",
    "SELECT '" + "a" * 900 + "' LIKE '" + "%a" * 450 + "b'",
    "SELECT count(*) FROM sqlite_master a, sqlite_master b, sqlite_master c, sqlite_master d, sqlite_master e, "
    "sqlite_master f, sqlite_master g, sqlite_master h, sqlite_master i, sqlite_master j, sqlite_master k, "
    "sqlite_master l, sqlite_master m",
]  # fmt: skip


@pytest.mark.parametrize("sql", RUNAWAY)
def test_no_query_runs_away(database: Path, sql: str) -> None:
    """It ends by SQLite's clock, its limits, or its process's: the tool's deadline comes ten seconds later."""
    result = ask(database, sql, timeout_s=0.3)
    assert result.fault != "timeout"
    if not result.is_error:
        assert len(result.content) < 3_000


ALLOWED = [
    ("SELECT name FROM customer WHERE 城市 = '北京'", [["Ann"]]),
    ("select count(*), round(avg(total), 2) from \"order\";", [[3, 10.17]]),
    ("WITH big AS (SELECT * FROM \"order\" WHERE total > 5) SELECT count(*) FROM big", [[2]]),
    ("SELECT * FROM spent ORDER BY total DESC", [["Ann", 29.5], ["Bo", 1.0]]),
    ("VALUES (1, 'x'), (2, NULL)", [[1, "x"], [2, None]]),
    ("SELECT upper(name) || strftime('%Y', '2020-01-02') FROM customer LIMIT 1", [["ANN2020"]]),
    ("SELECT picture FROM note", [["(2 bytes)"]]),
    ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT x FROM n", [[1], [2], [3]]),
    ("SELECT rank() OVER (ORDER BY total) FROM \"order\"", [[1], [2], [3]]),
    ("SELECT json_extract('{\"a\": [1, 2]}', '$.a[1]')", [[2]]),
    ("-- how many?\nSELECT count(*) FROM customer -- all", [[2]]),
    ("SELECT name FROM sqlite_master WHERE type = 'view'", [["spent"]]),
    ("SELECT 'a; DROP TABLE customer'", [["a; DROP TABLE customer"]]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "rows"), ALLOWED)
def test_reading_works(database: Path, sql: str, rows: list[list[object]]) -> None:
    result = ask(database, sql)
    assert not result.is_error, result.content
    assert result.value["rows"] == rows


def test_rows_and_cells_are_bounded_and_say_so(database: Path) -> None:
    result = ask(database, "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n")
    assert result.value["rows"] == [[1], [2], [3], [4], [5]] and "there are more" in result.value["cut"]
    cell = ask(database, "SELECT text FROM note").value["rows"][0][0]
    assert cell.endswith("[cut: 300 of 1,000 characters]")


def test_wrong_names_are_answered_with_the_right_ones(database: Path) -> None:
    assert (
        'call again with what there is: customer(id, name, 城市), "order"(id, customer_id, total), spent('
        in ask(database, "SELECT * FROM customers").content
    )
    assert "customer(id, name, 城市)" in ask(database, "SELECT surname FROM customer").content


def test_tables_as_they_are_built(database: Path) -> None:
    made = tools(database)
    assert made["query_database"].description.endswith(
        'Tables: customer(id, name, 城市), "order"(id, customer_id, total), spent(name, total), note(text, picture).'
    )
    assert made["show_tables"].invoke({"table": "ORDER"}).value == {
        "tables": [
            {
                "name": "order",
                "columns": ["id INTEGER PRIMARY KEY", "customer_id INTEGER", "total REAL"],
                "references": ["customer_id → customer.id"],
            }
        ]
    }
    assert [table["name"] for table in made["show_tables"].invoke({}).value["tables"]] == [
        "customer",
        "order",
        "spent",
        "note",
    ]
    assert "the tables are" in made["show_tables"].invoke({"table": "x"}).content
    assert all(item.effects == {"read"} for item in made.values()) and made["query_database"].strict == {"sql"}


def test_a_table_with_a_hostile_name_is_described(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute('CREATE TABLE "a""); DROP TABLE b; --" (x)')
        connection.execute("CREATE TABLE b (y)")
    connection.close()
    found = tools(tmp_path / "x.db")["show_tables"].invoke({}).value["tables"]
    assert [(table["name"], table["columns"]) for table in found] == [('a"); DROP TABLE b; --', ["x"]), ("b", ["y"])]


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\x00" + b"x" * 2000])
def test_a_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.db").write_bytes(content)
    if content:
        with pytest.raises(ToolError, match="no SQLite database"):
            database_tools(tmp_path / "x.db")
    else:  # to SQLite, an empty file is an empty database
        assert tools(tmp_path / "x.db")["show_tables"].invoke({}).value == {"tables": []}
    with pytest.raises(ToolError, match="no database file"):
        database_tools(tmp_path / "y.db")
    assert [p.name for p in tmp_path.iterdir()] == ["x.db"]


def test_what_others_write_meanwhile_is_seen_and_not_hindered(database: Path) -> None:
    made = tools(database)["query_database"]
    count = {"sql": "SELECT count(*) FROM customer"}
    assert made.invoke(count).value["rows"] == [[2]]
    writer = sqlite3.connect(database)
    writer.execute("INSERT INTO customer VALUES (3, 'Cy', 'Rome')")
    assert made.invoke(count).value["rows"] == [[2]]
    writer.commit()
    writer.close()
    assert made.invoke(count).value["rows"] == [[3]]


def test_a_locked_database_is_an_answer(database: Path) -> None:
    made = tools(database, timeout_s=0.2)["query_database"]
    writer = sqlite3.connect(database, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    assert "locked" in made.invoke({"sql": "SELECT 1 FROM customer"}).content
    writer.close()


def test_a_read_only_file_in_a_read_only_folder_is_read(database: Path) -> None:
    if os.geteuid() == 0:
        os.chmod(database, 0o444)
    assert ask(database, "SELECT 1").value["rows"] == [[1]]


def test_an_outline_that_is_too_long_has_the_names_of_the_tables_only() -> None:
    tables = [Table(f"t{n}", "table", tuple(f"column_{n}_{m} TEXT" for m in range(20)), ()) for n in range(5)]
    assert outline(tables) == "t0, t1, t2, t3, t4" and outline(tables[:1]).startswith("t0(column_0_0, column_0_1, ")
    assert len(outline(tables * 1000)) == 600


def test_a_table_named_by_a_word_of_sql_is_told_of(database: Path) -> None:
    result = ask(database, "SELECT total FROM order")
    assert result.is_error and 'call again with "order", in double quotes' in result.content
    assert "call again" not in ask(database, "SELECT FROM customer").content
