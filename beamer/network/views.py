"""What runs, as the network level reads it from the tracker: read-only, study by study.

Policies decide on the same as columns, see `beamer.network.snapshot`.
"""

from dataclasses import dataclass

from beamer.network.job import JobSpec


@dataclass(frozen=True)
class JobView:
    """A running trial as a policy sees it."""

    key: str
    """The trial's key."""
    spec: JobSpec
    """Its workers and traffic."""
    remaining: int
    """Iterations until what is waited for, 0 where nothing is."""
    plane: int
    """The plane that selects its paths."""
    started_s: float
    """When its attempt started."""
    klass: int | None = None
    """The class that it has now, None before its first plan."""
    cap_bps: int | None = None
    """The cap that it has now in bit/s, None without one or before its first plan."""


@dataclass(frozen=True)
class StageView:
    """What is waited for together, with its running jobs in order of their start.

    since_s: when the stage was registered; infinite for a single job. barrier: whether it is a stage, which waits for all of
    its jobs; otherwise it is a single one, until that completes.
    """

    name: str
    jobs: tuple[JobView, ...]
    since_s: float
    barrier: bool = True


@dataclass(frozen=True)
class LaterRung:
    """A declared rung that has not begun.

    jobs: how many it will hold. iterations: of each of them, in that rung alone. survivors: the names of the trials that it
    will hold, where they are known, as in an experiment; no live system knows them.
    """

    name: str
    jobs: int
    iterations: int
    survivors: tuple[str, ...] = ()


@dataclass(frozen=True)
class StudyView:
    """A study with what is waited for in it and the declared rungs that have not been registered as stages yet."""

    name: str
    weight: float
    stages: tuple[StageView, ...]
    later: tuple[LaterRung, ...] = ()
