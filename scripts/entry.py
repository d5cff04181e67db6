"""Where the `laploop` command begins. It knows nothing but how to end when Ctrl-C comes before all else is there: what
it runs is imported inside, since an interrupted import is a traceback of Python's.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; see `cli`."""
    try:
        from .cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("laploop: interrupted\n")
        sys.exit(130)  # 128 + SIGINT, as cli has it


if __name__ == "__main__":
    main()
