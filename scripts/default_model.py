"""Which model scripts/run uses when none is named: the default, or a smaller one where that is out of reach.

`laploop` itself never replaces a model; scripts/run calls this module, which prints its choice, and hands it
on as LAPLOOP_MODEL. Nothing is remembered: the default is tried again at every call, quickly.
"""

from __future__ import annotations

import sys
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laploop.models.progress import ProgressFunction

FALLBACK = "qwen2.5-coder-1.5b"
"""The smallest model that answers the sample tasks and also travels inside published packages."""
PROBE_S = 3.0


def hub_answers(address: str, wait_s: float = PROBE_S) -> bool:
    """Tell whether a model hub gives any HTTP answer within `wait_s` seconds.

    In a thread, since the look-up of a host name knows no time limit of its own.
    """
    answers: list[bool] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(address, method="HEAD")  # noqa: S310  # the user's HF_ENDPOINT
            with urllib.request.urlopen(request, timeout=wait_s):  # noqa: S310
                answers.append(True)
        except urllib.error.HTTPError:
            answers.append(True)  # an answer all the same; what it means is for the download to find out
        except (OSError, ValueError):
            answers.append(False)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(wait_s)
    return bool(answers and answers[0])


def choose(*, offline: bool = False, progress: ProgressFunction | None = None) -> tuple[str, str]:
    """Bring a model to disk and return (its name, why it is not the default; "" if it is).

    Args:
        offline: use only what is on disk.
        progress: told how a download goes.

    Raises:
        ModelError: neither model is on disk or can be fetched.
    """
    from huggingface_hub import constants
    from laploop.models import resolve_model
    from laploop.models.catalogue import Catalogue
    from laploop.models.errors import ModelNotFoundError, ModelUnavailableError

    default = Catalogue.load().default
    absent = (ModelUnavailableError, ModelNotFoundError)
    offline = offline or constants.HF_HUB_OFFLINE
    try:
        resolve_model(default, offline=True)
    except absent as error:
        why = f"{default} is not on disk and --offline is set"
        if not offline:
            why = f"{default} cannot be reached: no answer from {constants.ENDPOINT}"
            if hub_answers(constants.ENDPOINT):
                try:
                    resolve_model(default, progress=progress)
                except ModelUnavailableError as refused:
                    why = str(refused).rstrip(".")
                else:
                    return default, ""
        try:
            resolve_model(FALLBACK, offline=offline, progress=progress)
        except absent as other:
            raise type(error)(f"{why}; nor is there {FALLBACK} instead: {other}") from other
        return FALLBACK, why
    return default, ""


def main(arguments: list[str]) -> int:
    """Print the model's name on stdout, a line on stderr if it is not the default; returns the exit code."""
    from laploop.models import ModelError

    try:
        name, why = choose(offline="--offline" in arguments)
    except ModelError as error:
        print(f"laploop: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("laploop: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    if why:
        print(f"laploop: {why}; using {name} (choose another with -m)", file=sys.stderr)
    print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
