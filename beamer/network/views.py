"""What runs, as the network level reads it from the tracker: read-only, study by study.

Policies decide on the same as columns, see `beamer.network.snapshot`.
"""

from dataclasses import dataclass

from beamer.studies.model import JobSpec, Rung, StageStatus


@dataclass(frozen=True)
class JobView:
    """A running job as a policy sees it.

    done: of `spec.iterations`, complete. plane: selects its paths. klass: the class it has now, None before its first plan.
    """

    key: str
    spec: JobSpec
    done: int
    plane: int
    registered_s: float
    klass: int | None = None

    @property
    def remaining(self) -> int:
        """Iterations still to run."""
        return max(self.spec.iterations - self.done, 0)


@dataclass(frozen=True)
class StageView:
    """A stage that is not done, with its running jobs in order of registration."""

    name: str
    status: StageStatus
    registered_s: float
    jobs: tuple[JobView, ...]


@dataclass(frozen=True)
class StudyView:
    """A study with its stages that are not done and the declared rungs that have not been registered yet."""

    name: str
    weight: float
    registered_s: float
    stages: tuple[StageView, ...]
    later: tuple[Rung, ...] = ()
