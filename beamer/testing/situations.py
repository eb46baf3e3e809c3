"""Hypothesis strategies for what a network policy decides on, edge cases included."""

import math
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from beamer.network.collectives import PARAMETER_SERVER
from beamer.network.fabric import Fabric
from beamer.network.job import JobSpec
from beamer.network.snapshot import CoflowColumns, Snapshot
from beamer.network.views import JobView, LaterRung, StageView, StudyView
from beamer.studies.model import Role, Worker, trial_key
from beamer.testing.fabrics import star, two_spines

HUGE_BYTES = 10**15
HUGE_BPS = 10**17  # The huge transfers take moments at this rate, so that policies with timers do not run for ever.

FABRICS = (star(3), two_spines(1))
FAST_FABRICS = (star(3, HUGE_BPS), two_spines(1, HUGE_BPS))

_sizes = (0, 1, 1448, 100_000, 100_000, 600_000)
_computing = st.sampled_from((0.0, 0.01, 0.5, 0.5))
STUDY_WEIGHTS = st.sampled_from((0.5, 1.0, 1.0, 3.0))


@st.composite
def job_specs(draw: st.DrawFn, fabric: Fabric, name: str) -> JobSpec:
    """Draw a job of one to four processes, several on one host at times, that may have nothing to send."""
    hosts = draw(st.lists(st.sampled_from([host.name for host in fabric.hosts]), min_size=1, max_size=4))
    kinds = ["ring", "fsdp", "all-to-all"]
    kinds += ["halving-doubling"] if len(hosts) in (1, 2, 4) else []
    kinds += [PARAMETER_SERVER] if len(hosts) > 1 else []
    collective = draw(st.sampled_from(kinds))
    roles = [Role.SERVER if collective == PARAMETER_SERVER and i == 0 else Role.WORKER for i in range(len(hosts))]
    return JobSpec(
        name=name,
        workers=tuple(Worker(rank, host, role) for rank, (host, role) in enumerate(zip(hosts, roles, strict=True))),
        iterations=draw(st.integers(1, 4)),
        sync_bytes=draw(st.sampled_from((*_sizes, HUGE_BYTES) if fabric.links[0].rate_bps == HUGE_BPS else _sizes)),
        collective=collective,
        compute_s=draw(_computing),
        overlap=draw(st.sampled_from((0.0, 0.0, 0.5, 1.0))),
    )


@dataclass(frozen=True)
class Situation:
    """Studies on a fabric, and the coflows that their running jobs have in flight.

    flying: by running job, None without a coflow in flight, else the share that it has left and the time of its release.
    """

    fabric: Fabric
    studies: tuple[StudyView, ...]
    flying: tuple[tuple[float, float] | None, ...] = ()

    def snapshot(self) -> Snapshot:
        """Return the columns that a policy sees."""
        still = Snapshot.of(self.fabric, self.studies)
        jobs = still.jobs
        left = np.array([1.0 if flight is None else flight[0] for flight in self.flying])
        coflows = CoflowColumns(
            in_flight=np.array([flight is not None for flight in self.flying], np.bool_),
            released_s=np.array(
                [at if flight is None else flight[1] for flight, at in zip(self.flying, jobs.started_s.tolist(), strict=True)]
            ),
            sent_bits=(1 - left) * jobs.size_bits,
            left_bits=left * jobs.size_bits,
            longest_bits=left * jobs.longest_bits,
            seconds=left[jobs.owner] * jobs.seconds,
            later=np.zeros(len(jobs.seconds)),
        )
        return replace(still, coflows=coflows)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Draw up to four studies of up to two stages of up to three jobs, some with later rungs, some with nothing running.

    Some stages are trials that no stage waits for, each by itself.
    """
    fabric = draw(st.sampled_from((*FABRICS, *FABRICS, *FAST_FABRICS)))
    studies: list[StudyView] = []
    flying: list[tuple[float, float] | None] = []
    flights = st.none() | st.tuples(st.sampled_from((0.0, 0.1, 1.0)), st.sampled_from((2.5, 3.0, 9.0)))
    classes = st.none() | st.integers(0, 7)
    for s in range(draw(st.integers(0, 4))):
        stages: list[StageView] = []
        for g in range(draw(st.integers(0, 2))):
            jobs: list[JobView] = []
            for j in range(draw(st.integers(0, 3))):
                spec = draw(job_specs(fabric, f"trial{g}{j}"))
                remaining, plane = draw(st.integers(0, spec.iterations)), draw(st.integers(0, fabric.planes - 1))
                key = trial_key(f"study{s}", spec.name)
                jobs.append(JobView(key, spec, remaining, plane, draw(st.sampled_from((0.0, 1.0, 2.5))), draw(classes)))
                flying.append(draw(flights))
            if draw(st.integers(0, 2)):
                stages.append(StageView(f"rung{g}", tuple(jobs), draw(st.sampled_from((0.0, 2.5)))))
            else:
                stages += [StageView(f"trial:{job.spec.name}", (job,), math.inf, barrier=False) for job in jobs]
        later = tuple(
            LaterRung(f"later{r}", draw(st.integers(1, 4)), draw(st.integers(1, 50))) for r in range(draw(st.integers(0, 2)))
        )
        studies.append(StudyView(f"study{s}", draw(STUDY_WEIGHTS), tuple(stages), later))
    return Situation(fabric, tuple(studies), tuple(flying))


def snapshots() -> st.SearchStrategy[Snapshot]:
    """Draw what policies decide on, see `situations`."""
    return situations().map(Situation.snapshot)
