"""One folder, and nothing outside it: the paths that the file tools may touch. It reads no content.

A path is resolved with all its links first and judged afterwards, so `..`, absolute paths and symlinks are
one case. Whether something outside exists is never told. What is judged is then opened name by name (`beneath`), so
that no link put there in the last moment is followed, and without waiting for a FIFO's writer; only regular files are
read. The system's own views (/proc, /sys, /dev) are outside whatever the root is.
"""

from __future__ import annotations

import difflib
import io
import os
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .beneath import listed, open_beneath
from .errors import FileAccessError

MAX_VISITED = 200_000  # entries of one walk

_MAX_PATH_CHARS = 4_096  # Linux's own limit, in bytes

# Folders that a person would not look into: hidden ones, compiled Python, and setuptools' copy of an editable install.
_UNSEEN = (".", "__pycache__", "__editable__")
_SYSTEM_VIEWS = tuple(Path(name) for name in ("/proc", "/sys", "/dev")) if os.name == "posix" else ()


class Found(NamedTuple):
    """A file of a walk: its path as the model sees it, and how to open it: `name` in the folder `descriptor`, which
    is open until the next file is asked for; None where it has to be opened by its path."""

    shown: str
    name: str
    descriptor: int | None


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

        A name that is there in another Unicode normal form (macOS writes é as two characters) is that one.

        Raises:
            FileAccessError: it leaves the root, or is not a path.
        """
        if "\x00" in path:
            raise FileAccessError("the path contains a NUL character")
        if len(path) > _MAX_PATH_CHARS:
            raise FileAccessError(f"the path has {len(path):,} characters; at most {_MAX_PATH_CHARS:,} are allowed")
        try:
            real = self._inside(path, Path(os.path.realpath(self.path / (path or "."))))
            if path.isascii() or os.path.lexists(real):
                return real
            return self._inside(path, Path(os.path.realpath(self._other_form(real))))
        except UnicodeEncodeError as error:  # half a surrogate pair: no system has such a name
            raise FileAccessError(f"{path[:200]!r} is not a path: it is not valid Unicode") from error

    def _inside(self, path: str, real: Path) -> Path:
        if not self.contains(real):
            raise FileAccessError(f"{path[:200]!r} is outside the root folder; use a path inside it, such as '.'")
        return real

    def _other_form(self, real: Path) -> Path:
        """The path whose names are those of `real` in whatever normal form stands in the folder."""
        found = self.path
        for name in real.relative_to(self.path).parts:
            if not os.path.lexists(found / name):
                wanted = unicodedata.normalize("NFC", name)
                name = next((n for n in self._names(found) if unicodedata.normalize("NFC", n) == wanted), name)
            found /= name
        return found

    def contains(self, real: Path) -> bool:
        """Whether an already resolved path is the root or inside it."""
        if any(view == real or view in real.parents for view in _SYSTEM_VIEWS if view != self.path):
            return False
        return real == self.path or self.path in real.parents

    def shown(self, real: Path) -> str:
        """Return a path inside the root as the model sees it: relative, with forward slashes."""
        return real.relative_to(self.path).as_posix()

    def folder(self, path: str) -> Path:
        """Return the real path of a folder; raises FileAccessError if it is none."""
        real = self.resolve(path)
        if os.path.isdir(real):  # noqa: PTH112 - Path.is_dir raises for names that are too long
            return real
        if os.path.exists(real):  # noqa: PTH110
            raise FileAccessError(f"{path[:200]!r} is a file, not a folder; read_file reads it")
        raise self._missing(path, real)

    def entries(self, folder: Path) -> list[str]:
        """The names in a folder, sorted, without hidden ones; those of folders end in /.

        Where a link leads is told only if it leads to somewhere inside.

        Raises:
            FileAccessError: it may not be listed.
        """
        try:
            with listed(self.path, folder) as (_, found):
                return sorted(
                    f"{entry.name}/" if self._is_folder(folder, entry) else entry.name
                    for entry in found
                    if not entry.name.startswith(".")
                )
        except OSError as error:
            raise FileAccessError(f"cannot list {self.shown(folder)!r}: {error.strerror}") from error

    def _is_folder(self, folder: Path, entry: os.DirEntry[str]) -> bool:
        if not entry.is_symlink():
            return entry.is_dir(follow_symlinks=False)
        real = Path(os.path.realpath(folder / entry.name))
        return self.contains(real) and os.path.isdir(real)  # noqa: PTH112

    def open(self, path: str) -> io.BufferedReader:
        """Open a regular file for reading bytes.

        Raises:
            FileAccessError: missing (names near ones), a folder, a device or FIFO, not permitted, or outside.
        """
        real = self.resolve(path)
        try:
            if not stat.S_ISREG(os.lstat(real).st_mode):  # before opening: opening a device may already do something
                raise self._not_regular(path, real)
            descriptor = open_beneath(self.path, real)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._missing(path, real) from error
        except OSError as error:
            raise FileAccessError(f"cannot read {path[:200]!r}: {error.strerror or 'refused'}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._not_regular(path, real)
        return os.fdopen(descriptor, "rb")

    def walk(self, folder: Path) -> Iterator[Found]:
        """Yield the files below `folder`, sorted, without hidden entries, what Python makes beside its sources, linked
        folders and links out of the root. Folders that cannot be listed are passed over.

        Ends after `MAX_VISITED` entries.
        """
        visited = 0
        waiting = [folder]
        while waiting:
            current = waiting.pop()
            try:
                with listed(self.path, current) as (descriptor, found):
                    below, files = self._sorted_entries(current, found)
                    del found
                    waiting += [current / name for name in reversed(below)]
                    prefix = "" if current == self.path else f"{self.shown(current)}/"
                    for name, is_link in files:
                        visited += 1
                        if visited > MAX_VISITED:
                            return
                        yield Found(prefix + name, name, None if is_link else descriptor)
            except OSError:  # as os.walk does
                continue

    def _sorted_entries(self, folder: Path, found: list[os.DirEntry[str]]) -> tuple[list[str], list[tuple[str, bool]]]:
        """The folders to walk into, and the files, each with whether it is a link."""
        folders: list[str] = []
        files: list[tuple[str, bool]] = []
        for entry in found:
            name = entry.name
            if name.startswith("."):
                continue
            is_link = entry.is_symlink()
            if not is_link and entry.is_dir(follow_symlinks=False):
                if not name.startswith(_UNSEEN):
                    folders.append(name)
            elif not is_link or self._links_to_file_inside(folder / name):
                files.append((name, is_link))
        return sorted(folders), sorted(files)

    def _links_to_file_inside(self, link: Path) -> bool:
        real = Path(os.path.realpath(link))
        return self.contains(real) and os.path.isfile(real)  # noqa: PTH113

    def _not_regular(self, path: str, real: Path) -> FileAccessError:
        if os.path.isdir(real):  # noqa: PTH112
            return FileAccessError(f"{path[:200]!r} is a folder; list_files shows what is in it")
        if os.path.islink(real):  # noqa: PTH114 - what realpath leaves as a link leads round in a circle
            return FileAccessError(f"cannot read {path[:200]!r}: its links lead in a circle, or have just changed")
        return FileAccessError(f"{path[:200]!r} is a device or a pipe, not a file with text")

    def _missing(self, path: str, real: Path) -> FileAccessError:
        # Models put a folder in front that nobody named: the file of that name nearest to the root is what was meant.
        for above in list(real.relative_to(self.path).parents)[1:]:
            meant = self.path / above / real.name
            if os.path.isfile(meant) and not meant.is_symlink():  # noqa: PTH113
                return FileAccessError(f"there is no {path[:200]!r}; call again with {self.shown(meant)!r}")
        folder = real.parent
        while not os.path.isdir(folder) and folder != self.path:  # noqa: PTH112
            folder = folder.parent
        names = sorted(name for name in self._names(folder) if not name.startswith("."))[:1000]
        lower = {name.lower(): name for name in names}
        near = [lower[name] for name in difflib.get_close_matches(real.name.lower()[:255], lower, n=3, cutoff=0.6)]
        place = "the root folder" if folder == self.path else repr(self.shown(folder))
        if near:
            return FileAccessError(f"there is no {path[:200]!r}; in {place} there is {', '.join(near)}")
        some = (", ".join(names[:8]) or "nothing") + (" …" if len(names) > 8 else "")
        return FileAccessError(f"there is no {path[:200]!r}; {place} has {some}")

    def _names(self, folder: Path) -> list[str]:
        """The names in a folder, or none where it cannot be listed."""
        try:
            with listed(self.path, folder) as (_, found):
                return [entry.name for entry in found]
        except OSError:
            return []
