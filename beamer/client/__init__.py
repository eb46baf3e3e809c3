"""What trainers and tuners call: it tells the controller what runs, and never blocks it or makes it fail.

Names are imported when they are first used: `beamer run` needs a lease alone before it starts its command.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beamer.client.client import Client
    from beamer.client.handles import Attachment, StageHandle, StudyHandle, TrialHandle
    from beamer.client.urls import RUN_VARIABLE, URL
    from beamer.studies.model import Role, Rung, Worker

__all__ = [
    "RUN_VARIABLE",
    "URL",
    "Attachment",
    "Client",
    "Role",
    "Rung",
    "StageHandle",
    "StudyHandle",
    "TrialHandle",
    "Worker",
]
_HOMES = {
    "Client": "beamer.client.client",
    **dict.fromkeys(("Attachment", "StageHandle", "StudyHandle", "TrialHandle"), "beamer.client.handles"),
    **dict.fromkeys(("RUN_VARIABLE", "URL"), "beamer.client.urls"),
    **dict.fromkeys(("Role", "Rung", "Worker"), "beamer.studies.model"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
