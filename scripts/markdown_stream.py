"""Markdown that is shown while it is still being written. It knows no events.

Blocks that are whole are printed for good; the last, unfinished one is drawn anew as it grows, its last lines where it
is taller than the screen. So a long answer scrolls like any other output, and nothing is printed twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment


class MarkdownStream:
    """Feed it pieces of text, close it once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest = ""
        self._live: Live | None = None
        self._n_blocks = 0

    def feed(self, piece: str) -> None:
        """Take a piece of text; it may end anywhere."""
        done, self._rest = split_blocks(self._rest + piece)
        if done.strip():
            self._print(done)
        if not self._rest.strip():
            return
        if self._live is None:
            self._gap()
            self._live = Live(console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
        self._live.update(Tail(self._rendered(self._rest)))

    def close(self) -> None:
        """Print what is left."""
        rest, self._rest = self._rest, ""
        if rest.strip():
            self._print(rest)
        self._stop_live()

    def _print(self, text: str) -> None:
        if not self._stop_live():
            self._gap()
        self._console.print(self._rendered(text))
        self._n_blocks += 1

    def _gap(self) -> None:
        if self._n_blocks:
            self._console.print()

    def _stop_live(self) -> bool:
        if self._live is None:
            return False
        self._live.update("")  # it would be drawn once more, and its first screens cannot be taken back
        self._live.stop()
        self._live = None
        return True

    def _rendered(self, text: str) -> Constrain:
        # No hyperlinks: they hide their target behind text that the model chose.
        markdown = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
        # Models break a line where they mean it (a verse, an address) and never to fit a width, as Markdown supposes.
        for token in markdown.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
        # Lines are padded to the width. The terminal's own "^C" must fit behind the last one: where it wraps, what
        # is drawn anew starts a line too low.
        return Constrain(markdown, max(self._console.width - len("^C"), 1))


class Tail:
    """The last lines of something, as many as the screen can take back: one less than it is high."""

    def __init__(self, whole: RenderableType) -> None:
        self._whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Render it, for rich."""
        lines = console.render_lines(self._whole, options.update(height=None), pad=False)
        for line in lines[-max(console.height - 1, 1) :]:
            yield from line
            yield Segment.line()


def split_blocks(text: str) -> tuple[str, str]:
    """The blocks of Markdown that nothing to come can change, and the rest; both joined are the text.

    A cut falls after a blank line, outside of a code fence, before a line that has begun and is not indented
    (an indented one may belong to the list item above).
    """
    cut = position = 0
    fence = ""
    after_blank = False
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
        else:
            if after_blank and stripped and not line[0].isspace():
                cut = position
            fence = _fence_of(stripped)
        after_blank = not fence and not stripped
        position += len(line)
    return text[:cut], text[cut:]


def _fence_of(line: str) -> str:
    """The run of back-quotes or tildes that opens a code block on this line; "" for none."""
    if line[:3] not in ("```", "~~~"):
        return ""
    return line[: len(line) - len(line.lstrip(line[0]))]
