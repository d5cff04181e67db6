"""search_documents: five kinds of documents, two languages, citations that hold, an index as fresh as the folder."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from documents import make_docx, make_pdf
from hypothesis import given
from hypothesis import strategies as st
from laploop.tools import FileAccessError
from laploop.tools.builtin.documents import document_tool
from laploop.tools.document_index import Answer, DocumentIndex
from laploop.tools.document_text import document_lines, kind_of, read_pdf
from laploop.tools.file_root import FileRoot

NOTES = """# Garden

The tomatoes were planted on 3 May.
They need water.

# House

The boiler was repaired by Weber for 240 euros.
"""
CHINESE = "会议纪要\n\n下周三下午三点在二楼会议室讨论预算。\n负责人:王芳。\n"
PAGE = """<html><head><title>x</title><script>boiler()</script></head>
<body>
<nav>Home boiler</nav>
<h1>Recipe</h1>
<p>Take <b>two</b> lemons
and sugar.</p>
</body></html>"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "home.md").write_text(NOTES, "utf-8")
    (root / "notes" / "会议.txt").write_bytes(CHINESE.encode("gbk"))
    (root / "page.html").write_text(PAGE, "utf-8")
    (root / "contract.pdf").write_bytes(
        make_pdf("Lease contract\nbetween A and B", "The deposit is 1,800 euros\n(two months).")
    )
    (root / "letter.docx").write_bytes(
        make_docx("Dear Ms Lind,", "", "the invoice of June is <still> unpaid.", "发票已寄出")
    )
    (root / "program.py").write_text("boiler = 1\n")
    (root / ".hidden.md").write_text("boiler\n")
    (tmp_path / "secret.md").write_text("boiler secret\n")
    os.symlink(tmp_path / "secret.md", root / "link.md")
    return root


@pytest.fixture
def index(place: Path, tmp_path: Path) -> DocumentIndex:
    return DocumentIndex(FileRoot(place), tmp_path / "index" / "i.db")


@pytest.mark.parametrize(
    ("query", "source", "text"),
    [
        ("boiler repair", "notes/home.md:8", "repaired by Weber for 240 euros"),
        ("When were the tomatoes planted?", "notes/home.md:3", "3 May"),
        ("预算", "notes/会议.txt:3", "讨论预算"),
        ("三点", "notes/会议.txt:3", "下午三点"),
        ("芳", "notes/会议.txt:4", "王芳"),
        ("谁是负责人", "notes/会议.txt:4", "负责人"),
        ("lemons", "page.html:5", "two lemons"),
        ("DEPOSIT", "contract.pdf, page 2", "1,800 euros"),
        ("lease contracts", "contract.pdf, page 1", "Lease contract"),
        ("unpaid invoices", "letter.docx, paragraph 3", "<still> unpaid"),
        ("发票", "letter.docx, paragraph 4", "发票已寄出"),
    ],
)
def test_the_best_passage_and_its_place(index: DocumentIndex, query: str, source: str, text: str) -> None:
    best = index.search(query).passages[0]
    assert (best.source, text in best.text) == (source, True), best


def test_a_cited_line_is_the_line(index: DocumentIndex, place: Path) -> None:
    for query in ("boiler", "tomatoes", "water", "预算", "lemons"):
        path, _, number = index.search(query).passages[0].source.rpartition(":")
        data = (place / path).read_bytes()
        line = data.decode("gbk" if path.endswith("txt") else "utf-8").splitlines()[int(number) - 1]
        assert query in line


def test_what_is_no_document_or_outside_is_not_found(index: DocumentIndex) -> None:
    found = index.search("boiler secret program hidden")
    assert {passage.source.partition(":")[0] for passage in found.passages} == {"notes/home.md"}
    assert (found.n_documents, found.problems, found.n_waiting) == (5, (), 0)


def test_the_index_follows_the_folder(index: DocumentIndex, place: Path, tmp_path: Path) -> None:
    """New, changed, renamed and deleted documents, also for another process that has the same index."""
    other = DocumentIndex(FileRoot(place), tmp_path / "index" / "i.db")
    assert index.search("zebra").passages == ()
    (place / "new.md").write_text("a zebra\n")
    assert [p.source for p in index.search("zebra").passages] == ["new.md:1"]
    (place / "new.md").write_text("one\ntwo zebras\n")
    assert [p.source for p in other.search("zebra").passages] == ["new.md:2"]
    (place / "new.md").rename(place / "old.md")
    assert [p.source for p in index.search("zebra").passages] == ["old.md:2"]
    (place / "old.md").unlink()
    assert index.search("zebra").passages == other.search("zebra").passages == ()


def test_only_what_changed_is_read_again(index: DocumentIndex, place: Path) -> None:
    index.search("boiler")
    os.chmod(place / "notes" / "home.md", 0o000)  # root reads it all the same; then the time is what counts
    before = os.stat(place / "notes" / "home.md")
    (place / "notes" / "home.md").chmod(0o644)
    (place / "notes" / "home.md").write_text("x" * before.st_size)
    os.utime(place / "notes" / "home.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert index.search("boiler").passages, "same size, same time: taken for the same"


def test_a_search_that_has_no_time_goes_on_in_the_next_one(index: DocumentIndex) -> None:
    waiting = []
    while not waiting or waiting[-1]:
        waiting.append(index.search("boiler", budget_s=0).n_waiting)
    assert waiting == [4, 3, 2, 1, 0] and index.search("boiler").passages


def test_damaged_and_foreign_index_files_are_made_anew(index: DocumentIndex, tmp_path: Path) -> None:
    file = tmp_path / "index" / "i.db"
    index.search("boiler")
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(b"nothing that SQLite knows" * 100)
    assert index.search("boiler").passages
    file.unlink()
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert index.search("boiler").passages


def test_what_cannot_be_read_is_told_and_hinders_nothing(index: DocumentIndex, place: Path) -> None:
    (place / "a.pdf").write_bytes(b"%PDF-1.4 broken")
    (place / "b.docx").write_bytes(b"no zip")
    (place / "c.txt").write_bytes(b"\x00\x01\x02")
    (place / "d.html").write_bytes(b"")
    (place / "e.pdf").write_bytes(make_pdf(""))
    found = index.search("boiler")
    assert found.passages and [problem.partition(":")[0] for problem in found.problems] == [
        "a.pdf", "b.docx", "c.txt", "d.html", "e.pdf",
    ]  # fmt: skip
    assert "pictures" in found.problems[-1]


@pytest.mark.parametrize(
    "before",
    [
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;">]>',
    ],
)
def test_a_word_file_with_entities_reads_nothing_else(before: str) -> None:
    data = make_docx("ENTITY", before=before)
    lines = document_lines("docx", data)
    assert [line.text for line in lines] == ["ENTITY"] and b"root:" not in data


def test_a_word_file_that_unpacks_to_much_is_refused() -> None:
    with pytest.raises(FileAccessError, match="unpacked"):
        document_lines("docx", make_docx("x" * 30_000_000))


def test_a_page_may_be_large_but_not_too_large() -> None:
    with pytest.raises(FileAccessError, match="larger than"):
        document_lines("html", b"x" * 6_000_000)


def test_pdf_text_comes_by_page() -> None:
    import base64

    assert read_pdf(base64.b64encode(make_pdf("one", "two")).decode()) == ["one", "two"]
    assert kind_of("A.PDF") == "pdf" and kind_of("README") is None and kind_of("a.exe") is None


@pytest.mark.parametrize(
    "query", ['"', "AND OR NOT", "a* OR (b", "NEAR(x, y)", "col:x", "^x", "x'; DROP TABLE words", "-x", "{a}"]
)
def test_no_query_is_syntax(index: DocumentIndex, query: str) -> None:
    try:
        assert isinstance(index.search(query), Answer)
    except FileAccessError as error:
        assert "no word" in str(error)


@given(st.text(max_size=40))
def test_law_any_query_is_answered_or_refused(tmp_path_factory: pytest.TempPathFactory, query: str) -> None:
    root = tmp_path_factory.getbasetemp() / "law-documents"
    root.mkdir(exist_ok=True)
    (root / "a.md").write_text("x\n")
    try:
        DocumentIndex(FileRoot(root), root.parent / "law.db").search(query)
    except FileAccessError as error:
        assert "no word" in str(error)


@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x4E30), min_size=1, max_size=12), st.data())
def test_law_any_piece_of_a_chinese_text_finds_it(
    tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("chinese")
    (root / "a.md").write_text(f"前言\n{text}\n", "utf-8")
    start = data.draw(st.integers(0, len(text) - 1))
    piece = text[start : data.draw(st.integers(start + 1, len(text)))]
    assert DocumentIndex(FileRoot(root), root / "i.db").search(piece).passages


def test_the_tool_says_where_it_stands(place: Path, index: DocumentIndex) -> None:
    (place / "z.docx").write_bytes(b"no zip")
    made = document_tool(place, index)
    value = made.invoke({"query": "boiler"}).value
    assert value["passages"][0]["source"] == "notes/home.md:8" and value["documents"] == 5
    assert value["not_read"] == ["z.docx: not a Word file, damaged or encrypted (File is not a zip file)"]
    assert "try others" in made.invoke({"query": "nowhere"}).value["hint"]
    assert made.invoke({"query": " . "}).is_error and made.effects == {"read"}


def test_by_default_the_index_lies_in_the_cache_folder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAPLOOP_CACHE_DIR", str(tmp_path / "cache"))
    assert document_tool(place).invoke({"query": "boiler"}).value["passages"]
    assert len(list((tmp_path / "cache" / "documents").iterdir())) == 1
