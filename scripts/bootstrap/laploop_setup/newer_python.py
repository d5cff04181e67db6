"""Start again under a new enough Python when the one that was called is too old.

Read by Python 3.6 and later, so: no syntax, and nothing of the standard library, that came after 3.6.
"""

import glob
import os
import shutil
import subprocess
import sys
from typing import List, Optional, Tuple

OLDEST = (3, 10)
# constraints.txt is tested for 3.10 to 3.13; 3.14 is tried last.
PREFERENCE = ("3.13", "3.12", "3.11", "3.10", "3.14")
_PROBE = "import sys, venv; sys.stdout.write('%d.%d' % sys.version_info[:2])"


def candidates(path: Optional[str], pyenv_root: str) -> List[str]:
    """List interpreters by name on `path`, then pyenv's, newest tested version first."""
    found = []
    for version in PREFERENCE:
        on_path = shutil.which("python" + version, path=path)
        if on_path:
            found.append(on_path)
        for program in ("bin/python", "python.exe"):
            found.extend(sorted(glob.glob(os.path.join(pyenv_root, "versions", version + ".*", program))))
    return found


def usable(program: str) -> bool:
    """Tell whether this interpreter starts, is new enough and can make virtual environments.

    A pyenv shim for a version that is not selected exists on PATH and fails when called.
    """
    try:
        done = subprocess.run(
            [program, "-I", "-c", _PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20
        )
        version = tuple(int(part) for part in done.stdout.decode("ascii").split("."))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and version >= OLDEST


def too_old_message(version: Tuple[int, int]) -> str:
    """Say in one line what is wrong and how to get on."""
    return (
        "laploop: needs Python 3.10 or newer, this is %d.%d, and no python3.10 ... python3.14 was found on "
        "PATH or in pyenv: install one, then call the script with it (python3.12 scripts/run ...)" % version
    )


def ensure() -> None:
    """Return if this Python is new enough, else run the script under a newer one; exits 1 without one."""
    if sys.version_info >= OLDEST:
        return
    pyenv_root = os.environ.get("PYENV_ROOT") or os.path.join(os.path.expanduser("~"), ".pyenv")
    for program in candidates(None, pyenv_root):
        if usable(program):
            found = sys.version_info[:2]
            sys.stderr.write("laploop: Python %d.%d is too old, going on with %s\n" % (found + (program,)))
            sys.stderr.flush()
            arguments = [program, os.path.abspath(sys.argv[0])] + sys.argv[1:]
            if os.name == "nt":  # exec on Windows returns to the shell before the new process ends
                sys.exit(subprocess.call(arguments))
            os.execv(program, arguments)
    sys.exit(too_old_message(sys.version_info[:2]))
