"""A job: what the network level sees of a trial that runs, its workers and what they do in an iteration."""

from dataclasses import dataclass

from beamer.studies.model import Profile, Worker

# A synchronisation that nothing is known of has the gradients of 25 million weights in single precision.
UNDECLARED_BYTES = 100_000_000


@dataclass(frozen=True)
class JobSpec:
    """A job's workers and traffic, everything known or estimated."""

    name: str
    """The name of its trial."""
    workers: tuple[Worker, ...]
    """Its processes, ordered by rank."""
    iterations: int
    """Iterations until it is judged: to a stage's end, its next milestone, or its end (N_j)."""
    sync_bytes: int
    """Gradient bytes of one synchronisation (G)."""
    collective: str = "ring"
    """A name in `beamer.network.collectives.COLLECTIVES`."""
    compute_s: float = 0.0
    """Seconds of computing per iteration (c_j)."""
    overlap: float = 0.0
    """The share of the computing in [0, 1] during which the coflow already runs."""


def job_spec(trial: str, workers: tuple[Worker, ...], profile: Profile) -> JobSpec:
    """Return a trial that runs on these workers as a job, of which nothing is known that its profile does not say."""
    return JobSpec(
        trial,
        workers,
        0,
        UNDECLARED_BYTES if profile.sync_bytes is None else profile.sync_bytes,
        profile.collective,
        profile.compute_s or 0.0,
        profile.overlap,
    )


def profile(spec: JobSpec) -> Profile:
    """Return what a job does in an iteration, as its attempt declares it."""
    return Profile(spec.sync_bytes, spec.collective, spec.compute_s, spec.overlap)
