"""What trainers and tuners call: it tells the controller what runs, and never blocks or fails what runs."""

from beamer.client.client import URL, Client, Job, Stage, Study
from beamer.studies.model import Role, Rung, Worker

__all__ = ["URL", "Client", "Job", "Role", "Rung", "Stage", "Study", "Worker"]
