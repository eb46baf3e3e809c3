"""The engines of `beamer schedule` by name: each is found by the settings that are its own in a search file."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from beamer.engines.local import LaunchSpec
from beamer.entry_points import Registry
from beamer.errors import InputError
from beamer.file_numbers import Amount, NodeGpus
from beamer.gpu.engine import Engine
from beamer.gpu.model import Node
from beamer.schedule.machine_gpus import MachineGpus
from beamer.studies.model import check_identifier
from beamer.validation import FileEntry

DEFAULT_ENGINE = "local"
POLL_INTERVAL_S = 0.1
"""The time between two observations of jobs on this machine while nothing is due."""

Launch = Callable[[str], LaunchSpec]
"""Returns what to run for a job, its checkpoint's path included. Raises `LookupError` for a job that is not known."""
Left = list[tuple[str, str]]
"""Jobs of which something still runs, each with a line that says what, and where."""


class NodeSettings(FileEntry):
    """A node of a search file, with what every engine has to know of it."""

    name: str
    """The node's name, which no other node has."""
    gpus: NodeGpus
    """GPUs that jobs may use there; without a GPU each is a slot."""
    cpus: Amount = 0.0
    """Processor cores that jobs may use there; 0: not known."""


class EngineSettings(FileEntry, ABC):
    """The keys of a search file that are an engine's own; another package adds one by an entry point of `beamer.engines`.

    Its fields are those keys; none may be called as one of the search's own. A validator of its own raises `InputError` for
    what the engine cannot use.
    """

    may_change: ClassVar[tuple[str, ...]] = ("nodes",)
    """The keys that may be others when a search is continued."""
    preloads: ClassVar[bool] = False
    """Whether the engine starts jobs with modules imported, as `LaunchSpec.preload` says."""
    nodes: list[NodeSettings] = Field(min_length=1)
    """The nodes that jobs may run on."""

    @abstractmethod
    def open(self, directory: Path, launch: Launch, clock: Callable[[], float]) -> Engine:
        """Return the engine. directory: for what it keeps of jobs. clock: the scheduler's, which reports are on."""

    @property
    def poll_interval_s(self) -> float:
        """The time between two observations of jobs where the search file says nothing."""
        return POLL_INTERVAL_S

    @property
    def programs_here(self) -> bool:
        """Whether all jobs run on this machine's file system, so that their programs can be looked for here."""
        return False

    def find_gpus(self, widest: int) -> MachineGpus:
        """Return the GPUs of this machine, against which the declared ones have been checked. Raises `InputError`.

        widest: the most GPUs that a trial may have. Most engines know nothing of GPUs.
        """
        return MachineGpus()

    def check_records(self, directory: Path, before: Self) -> None:
        """Check that jobs, of which the directory has records, are reached as with the settings before. Raises `InputError`."""

    def left(self, directory: Path, jobs: Collection[str] | None = None, *, kill: bool = False, here: bool = False) -> Left:
        """Return what still runs of jobs, None: of all; of most engines nothing does without them.

        kill: whether it is killed first. here: whether other machines are named and not asked, as that takes seconds.
        """
        return []

    def retire(self, directory: Path, kill: bool = False) -> Left:
        """End what waits for jobs that are saved or have ended, after the engine is closed; return what is left of it.

        kill: whether what does not end in time is killed.
        """
        return []

    @property
    def declared(self) -> tuple[Node, ...]:
        """The nodes, whether or not they are up."""
        return tuple(Node(node.name, node.gpus, node.cpus) for node in self.nodes)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = tuple(check_identifier(node.name, f"nodes[{i}].name") for i, node in enumerate(self.nodes))
        if len({*names}) < len(names):
            raise InputError("nodes", names, "names that differ")
        return self


ENGINES: Registry[EngineSettings] = Registry("beamer.engines", EngineSettings)  # type: ignore[type-abstract]  # the seam itself
