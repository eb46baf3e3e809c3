"""How the URL of a controller is written: in full, or as HOST or HOST:PORT; what the environment names of it."""

import re
from enum import StrEnum

from beamer.ports import HTTP_PORT

URL = f"http://127.0.0.1:{HTTP_PORT}"
URL_VARIABLE = "BEAMER_URL"
STUDY_VARIABLE, TRIAL_VARIABLE, RUN_VARIABLE = "BEAMER_STUDY", "BEAMER_TRIAL", "BEAMER_RUN"
LAUNCHER_VARIABLE = "BEAMER_LAUNCHER"
"""By this a command knows that whoever started it has registered its trial; see `CommandLauncher`."""
_SHORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/:@]+)(?P<port>:\d+)?(?P<path>/.*)?")


class CommandLauncher(StrEnum):
    """What has registered a command's trial, and reports its end.

    RUN: `beamer run`, which leaves progress to the command. READING_RUN: the same, where it reads progress from the output.
    SCHEDULE: `beamer schedule`, which reports progress, too.
    """

    RUN = "run"
    READING_RUN = "reading-run"
    SCHEDULE = "schedule"


def controller_urls(text: str) -> list[str]:
    """Return the URLs of controllers, which commas separate. One without a scheme is at http."""
    return [_in_full(one.strip()) for one in text.split(",")]


def _in_full(url: str) -> str:
    short = _SHORT.fullmatch(url)
    if short is None:
        return url
    return f"http://{short['host']}{short['port'] or f':{HTTP_PORT}'}{short['path'] or ''}"
