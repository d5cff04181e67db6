"""One folder, and nothing outside it: the paths that the file tools may touch. It reads no content.

A path is resolved with all its links first and judged afterwards, so `..`, absolute paths and symlinks are
one case. Whether something outside exists is never told. Files are opened without following a last-moment
link and without waiting for a FIFO's writer, and only regular files are read.
"""

from __future__ import annotations

import codecs
import difflib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from .errors import FileAccessError

_SNIFF_BYTES = 65_536
MAX_VISITED = 20_000  # entries of one walk


# Folders that a person would not look into: hidden ones, compiled Python, and setuptools' copy of an editable install.
_UNSEEN = (".", "__pycache__", "__editable__")


class FileRoot:
    """The folder `root`, resolved.

    Raises:
        FileAccessError: `root` is not a folder.
    """

    def __init__(self, root: Path) -> None:
        self.path = Path(os.path.realpath(root))
        if not self.path.is_dir():
            raise FileAccessError(f"the root folder {root} does not exist or is not a folder")

    def resolve(self, path: str) -> Path:
        """Return the real path of `path` (relative to the root, or absolute inside it); it need not exist.

        Raises:
            FileAccessError: it leaves the root, or is not a path.
        """
        if "\x00" in path:
            raise FileAccessError("the path contains a NUL character")
        real = Path(os.path.realpath(self.path / (path or ".")))
        if not self.contains(real):
            raise FileAccessError(f"{path[:200]!r} is outside the root folder; use a path inside it, such as '.'")
        return real

    def contains(self, real: Path) -> bool:
        """Whether an already resolved path is the root or inside it."""
        return real == self.path or self.path in real.parents

    def shown(self, real: Path) -> str:
        """Return a path inside the root as the model sees it: relative, with forward slashes."""
        return real.relative_to(self.path).as_posix()

    def folder(self, path: str) -> Path:
        """Return the real path of a folder; raises FileAccessError if it is none."""
        real = self.resolve(path)
        if real.is_dir():
            return real
        if real.exists():
            raise FileAccessError(f"{path[:200]!r} is a file, not a folder; read_file reads it")
        raise self._missing(path, real)

    def open(self, path: str) -> io.BufferedReader:
        """Open a regular file for reading bytes.

        Raises:
            FileAccessError: missing (names near ones), a folder, a device or FIFO, not permitted, or outside.
        """
        real = self.resolve(path)
        wanted = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # not every system has all
        flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in wanted)
        try:
            if not stat.S_ISREG(real.stat().st_mode):  # before opening: opening a device may already do something
                raise self._not_regular(path, real)
            descriptor = os.open(real, flags)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._missing(path, real) from error
        except OSError as error:
            raise FileAccessError(f"cannot read {path[:200]!r}: {error.strerror or 'refused'}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._not_regular(path, real)
        return os.fdopen(descriptor, "rb")

    def walk(self, folder: Path) -> Iterator[Path]:
        """Yield the files below `folder`, sorted, without hidden entries, what Python makes beside its sources, linked
        folders and links out of the root.

        Ends after `MAX_VISITED` entries.
        """
        visited = 0
        for current, folders, files in os.walk(folder, followlinks=False):
            folders[:] = sorted(name for name in folders if not name.startswith(_UNSEEN))
            for name in sorted(files):
                visited += 1
                if visited > MAX_VISITED:
                    return
                real = Path(current, name)
                if name.startswith(".") or (real.is_symlink() and not self._links_to_file_inside(real)):
                    continue
                yield real

    def _links_to_file_inside(self, link: Path) -> bool:
        real = Path(os.path.realpath(link))
        return self.contains(real) and real.is_file()

    def _not_regular(self, path: str, real: Path) -> FileAccessError:
        if real.is_dir():
            return FileAccessError(f"{path[:200]!r} is a folder; list_files shows what is in it")
        return FileAccessError(f"{path[:200]!r} is a device or a pipe, not a file with text")

    def _missing(self, path: str, real: Path) -> FileAccessError:
        folder = real.parent
        # Models put a folder in front that nobody named: the file of that name nearest to the root is what was meant.
        for above in [p for p in real.parents if p == self.path or self.path in p.parents][1:]:
            if (meant := above / real.name).is_file() and not meant.is_symlink():
                return FileAccessError(f"there is no {path[:200]!r}; call again with {self.shown(meant)!r}")
        while not folder.is_dir() and folder != self.path:
            folder = folder.parent
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))[:1000]
        lower = {name.lower(): name for name in names}
        near = [lower[name] for name in difflib.get_close_matches(real.name.lower(), lower, n=3, cutoff=0.6)]
        place = "the root folder" if folder == self.path else repr(self.shown(folder))
        if near:
            return FileAccessError(f"there is no {path[:200]!r}; in {place} there is {', '.join(near)}")
        listed = ", ".join(names[:8]) or "nothing"
        return FileAccessError(f"there is no {path[:200]!r}; {place} has {listed}{' …' if len(names) > 8 else ''}")


def text_encoding(file: io.BufferedReader) -> str | None:
    """Return the encoding of a file, judged by its first 64 KiB, or None if it is binary; the position
    stays."""
    head = file.peek(_SNIFF_BYTES)[:_SNIFF_BYTES]
    for bom, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if head.startswith(bom):
            return name
    if b"\x00" in head:
        return None
    for name in ("utf-8", "gb18030"):
        try:
            codecs.getincrementaldecoder(name)().decode(head)  # not final: a character cut at the end is no error
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def lines_of(file: io.BufferedReader, encoding: str, max_line_chars: int) -> Iterator[tuple[str, int]]:
    """Yield each line without its end, cut to `max_line_chars`, with its full length in characters.

    Lines end at LF, CRLF or CR. Memory stays bounded whatever the file holds.
    """
    with io.TextIOWrapper(file, encoding=encoding, errors="replace", newline=None) as text:
        start, n_chars = "", 0
        while piece := text.readline(_SNIFF_BYTES):
            ended = piece.endswith("\n")
            body = piece[:-1] if ended else piece
            start += body[: max_line_chars - len(start)]
            n_chars += len(body)
            if ended:
                yield start, n_chars
                start, n_chars = "", 0
        if n_chars:
            yield start, n_chars
