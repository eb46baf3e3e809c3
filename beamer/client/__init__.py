"""What trainers and tuners call: it registers what runs with the controller, and never blocks it or makes it fail."""

from beamer.client.client import URL, Client, JobHandle, StageHandle, StudyHandle
from beamer.studies.model import Role, Rung, Worker

__all__ = ["URL", "Client", "JobHandle", "Role", "Rung", "StageHandle", "StudyHandle", "Worker"]
