"""What trainers and tuners call: it tells the controller what runs, and never blocks it or makes it fail."""

from beamer.client.client import RUN_VARIABLE, URL, Client
from beamer.client.handles import Attachment, StageHandle, StudyHandle, TrialHandle
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
