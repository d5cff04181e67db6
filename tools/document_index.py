"""What is written in the documents of a folder, found by words: an index in SQLite (FTS5) that follows the folder.

Each search first looks at every file's size and time of change and reads what is new, so that an answer is never older
than the folder. Words are matched by their stems (porter); runs of Chinese, Japanese or Korean, which have no spaces,
are indexed by overlapping pairs of characters, so that a word of two is found wherever it stands. Best first is BM25's
order. The file lies in the cache folder: it can be deleted at any time, and is made anew when it is damaged.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .document_text import MAX_DOCUMENT_BYTES, Line, document_lines, kind_of
from .errors import FileAccessError
from .file_root import FileRoot

_VERSION = 1
_PASSAGE_CHARS = 700
_BUDGET_S = 20.0  # for reading new documents, in one search
_WORD = re.compile(r"[^\W_]+")
# Ideographs with their extensions, kana, hangul: scripts that are written without spaces, or with few.
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")
_SCHEMA = """
CREATE TABLE file (path TEXT PRIMARY KEY, size INTEGER, changed INTEGER, problem TEXT) WITHOUT ROWID;
CREATE TABLE passage (id INTEGER PRIMARY KEY, path TEXT, unit TEXT, numbers TEXT, text TEXT);
CREATE INDEX passage_path ON passage (path);
CREATE VIRTUAL TABLE words USING fts5(terms, tokenize = 'porter unicode61');
"""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document: `source` is what to cite, "notes/a.md:12" or "report.pdf, page 3"."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found, the best first, and what stood in its way.

    Attributes:
        n_documents: in the index.
        problems: documents that could not be read, each as "path: why".
        n_waiting: documents that are still to be read: the search after this one goes on with them.
    """

    passages: tuple[Passage, ...]
    n_documents: int
    problems: tuple[str, ...]
    n_waiting: int


class DocumentIndex:
    """The documents below `root`.

    Args:
        root: their folder.
        file: where the index is kept; made if it is missing.
    """

    def __init__(self, root: FileRoot, file: Path) -> None:
        self._root, self._file = root, file
        self._lock = threading.Lock()

    @classmethod
    def of(cls, root: FileRoot) -> DocumentIndex:
        """The index of `root` in laploop's cache folder (LAPLOOP_CACHE_DIR, or the platform's)."""
        from platformdirs import user_cache_path

        cache = Path(os.environ.get("LAPLOOP_CACHE_DIR") or user_cache_path("laploop", appauthor=False))
        name = hashlib.sha256(os.fsencode(root.path)).hexdigest()[:16]
        return cls(root, cache / "documents" / f"{name}.db")

    def search(self, query: str, *, most: int = 5, budget_s: float = _BUDGET_S) -> Answer:
        """The passages that go best with the words of `query`.

        Args:
            most: passages at most.
            budget_s: seconds for reading documents that are new or changed; at least one is read.

        Raises:
            FileAccessError: no words in the query, or the index cannot be kept.
        """
        words = _query(query)
        if not words:
            raise FileAccessError(f"there is no word in {query[:100]!r}; give the words to look for")
        with self._lock:
            try:
                return self._search(words, query, most, budget_s)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                    raise FileAccessError(f"the index {self._file} cannot be used: {error}") from error
                self._file.unlink(missing_ok=True)  # damaged, or of another version
                return self._search(words, query, most, budget_s)

    def _search(self, words: str, query: str, most: int, budget_s: float) -> Answer:
        with self._opened() as connection:
            n_waiting = self._refresh(connection, budget_s)
            found = connection.execute(
                "SELECT p.path, p.unit, p.numbers, p.text FROM words JOIN passage p ON p.id = words.rowid "
                "WHERE words MATCH ? ORDER BY bm25(words), p.id LIMIT ?",
                (words, most),
            ).fetchall()
            (n_documents,) = connection.execute("SELECT count(*) FROM file WHERE problem IS NULL").fetchone()
            problems = connection.execute("SELECT path, problem FROM file WHERE problem IS NOT NULL ORDER BY path")
            passages = tuple(_passage(row, query) for row in found)
            return Answer(passages, n_documents, tuple(f"{path}: {why}" for path, why in problems), n_waiting)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # what it holds is as private as the documents
                os.close(os.open(self._file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise FileAccessError(f"the index {self._file} cannot be made: {error.strerror}") from error
        connection = sqlite3.connect(self._file, timeout=30.0, isolation_level=None)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError("another version")
            if version == 0:
                connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT")
            yield connection
        finally:
            connection.close()

    def _refresh(self, connection: sqlite3.Connection, budget_s: float) -> int:
        """Bring the index up to date; the number of documents for which the time was too short."""
        deadline = time.monotonic() + budget_s
        known = {
            path: (size, changed) for path, size, changed in connection.execute("SELECT path, size, changed FROM file")
        }
        there: dict[str, tuple[int, int]] = {}
        for found in self._root.walk(self._root.path):
            if kind_of(found.name) is not None:
                with contextlib.suppress(OSError):  # it went away meanwhile
                    at = found.name if found.descriptor is not None else self._root.path / found.shown
                    status = os.stat(at, dir_fd=found.descriptor)
                    there[found.shown] = (status.st_size, status.st_mtime_ns)
        for path in known.keys() - there.keys():
            self._replace(connection, path, None, [], None)
        changed = [path for path, state in there.items() if known.get(path) != state]
        for n_done, path in enumerate(changed):
            if n_done and time.monotonic() > deadline:
                return len(changed) - n_done
            lines, problem = self._read(path)
            self._replace(connection, path, there[path], lines, problem)
        return 0

    def _read(self, path: str) -> tuple[list[Line], str | None]:
        try:
            with self._root.open(path) as file:
                return document_lines(kind_of(path) or "txt", file.read(MAX_DOCUMENT_BYTES + 1)), None
        except (FileAccessError, OSError) as error:
            return [], " ".join(str(error).split())[:200]

    def _replace(
        self,
        connection: sqlite3.Connection,
        path: str,
        state: tuple[int, int] | None,
        lines: list[Line],
        problem: str | None,
    ) -> None:
        """Put a document in the place of what was known of it; None for one that is gone."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("DELETE FROM words WHERE rowid IN (SELECT id FROM passage WHERE path = ?)", (path,))
            connection.execute("DELETE FROM passage WHERE path = ?", (path,))
            connection.execute("DELETE FROM file WHERE path = ?", (path,))
            if state is not None:
                connection.execute("INSERT INTO file VALUES (?, ?, ?, ?)", (path, *state, problem))
            for passage in _passages(lines):
                text = "\n".join(line.text for line in passage)
                numbers = " ".join(str(line.number) for line in passage)
                added = connection.execute(
                    "INSERT INTO passage (path, unit, numbers, text) VALUES (?, ?, ?, ?)",
                    (path, passage[0].unit, numbers, text),
                )
                # The name is indexed as well: "the garden notes" may say garden nowhere else.
                words = " ".join(_words(f"{path} {text}"))
                connection.execute("INSERT INTO words (rowid, terms) VALUES (?, ?)", (added.lastrowid, words))
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def _passages(lines: list[Line]) -> Iterator[list[Line]]:
    """Pieces of about 700 characters; a heading, a page, and a gap behind half a piece begin a new one."""
    piece: list[Line] = []
    n_chars = 0
    for line in lines:
        gap = bool(piece) and line.number > piece[-1].number + 1 and line.unit == "line"
        heading = line.text.startswith("#") and line.unit == "line"
        other_page = bool(piece) and line.unit == "page" and line.number != piece[-1].number
        full = n_chars + len(line.text) > _PASSAGE_CHARS
        if piece and (full or heading or other_page or (gap and n_chars > _PASSAGE_CHARS / 2)):
            yield piece
            piece, n_chars = [], 0
        piece.append(line)
        n_chars += len(line.text) + 1
    if piece:
        yield piece


def _words(text: str) -> Iterator[str]:
    """The words of a text as they are indexed: runs without spaces as pairs of characters, and their last one alone
    (so that the prefix `x*` finds x wherever it stands)."""
    for word in _WORD.findall(text.lower()):
        at = 0
        for run in _CJK.finditer(word):
            if run.start() > at:
                yield word[at : run.start()]
            characters = run.group()
            yield from (characters[n : n + 2] for n in range(len(characters)))
            at = run.end()
        if at < len(word):
            yield word[at:]


def _spaced(text: str) -> Iterator[str]:
    """Each line's words with a space before each."""
    for line in text.split("\n"):
        yield "".join(f" {word}" for word in _words(line))


def _query(query: str) -> str:
    """The query in FTS5's own syntax: any of its words. Quoted, they are never operators."""
    terms = []
    for word in _WORD.findall(query.lower()):
        for part in _CJK.findall(word):
            pairs = [part[n : n + 2] for n in range(len(part) - 1)]
            terms += [f'"{pair}"' for pair in pairs] or [f'"{part}"*']
        terms += [f'"{part}"' for part in _CJK.split(word) if part]
    return " OR ".join(dict.fromkeys(terms[:50]))


def _passage(row: tuple[str, str, str, str], query: str) -> Passage:
    """What is shown of a row: it is cited by the line that has most of the query's words."""
    path, unit, numbers, text = row
    wanted = {word if len(word) < 5 else word[:-2] for word in _words(query)}  # about its stem: repaired, repairs
    scores = [sum(f" {word}" in line for word in wanted) for line in _spaced(text)]
    number = numbers.split()[scores.index(max(scores))]
    return Passage(f"{path}:{number}" if unit == "line" else f"{path}, {unit} {number}", text)
