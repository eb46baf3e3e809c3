"""Hypothesis strategies for what policies, allocators and the simulator are given, awkward values included."""

from hypothesis import strategies as st

from beamer.allocation.demand import Demand
from beamer.fabric import Fabric
from beamer.model import JobSpec, JobView, Role, Rung, Snapshot, StageStatus, StageView, StudyView, Worker, job_key
from beamer.scenario import Scenario, StagePlan, StudyPlan
from beamer.testing.fabrics import star, two_spines

FABRICS = (star(3), two_spines(1))

_sizes = st.sampled_from((0, 1, 1448, 100_000, 100_000, 600_000, 10**15))
_computing = st.sampled_from((0.0, 0.01, 0.5, 0.5))
_weights = st.sampled_from((0.5, 1.0, 1.0, 3.0))


@st.composite
def job_specs(draw: st.DrawFn, fabric: Fabric, name: str) -> JobSpec:
    """Draw a job of one to three processes, several on one host at times, that may have nothing to send."""
    hosts = draw(st.lists(st.sampled_from([host.name for host in fabric.hosts]), min_size=1, max_size=3))
    collective = draw(st.sampled_from(("ring", "parameter-server"))) if len(hosts) > 1 else "ring"
    roles = [Role.SERVER if collective == "parameter-server" and i == 0 else Role.WORKER for i in range(len(hosts))]
    return JobSpec(
        name=name,
        workers=tuple(Worker(rank, host, role) for rank, (host, role) in enumerate(zip(hosts, roles, strict=True))),
        iterations=draw(st.integers(1, 4)),
        sync_bytes=draw(_sizes),
        collective=collective,
        compute_s=draw(_computing),
        overlap=draw(st.sampled_from((0.0, 0.0, 0.5, 1.0))),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Draw up to four studies of up to two stages of up to three jobs, some with later rungs, some with nothing running."""
    fabric = draw(st.sampled_from(FABRICS))
    studies: list[StudyView] = []
    for s in range(draw(st.integers(0, 4))):
        stages: list[StageView] = []
        for g in range(draw(st.integers(0, 2))):
            jobs: list[JobView] = []
            for j in range(draw(st.integers(0, 3))):
                spec = draw(job_specs(fabric, f"trial{j}"))
                done, plane = draw(st.integers(0, spec.iterations)), draw(st.integers(0, fabric.planes - 1))
                key = job_key(f"study{s}", f"rung{g}", spec.name)
                jobs.append(JobView(key, spec, done, plane, draw(st.sampled_from((0.0, 1.0, 2.5)))))
            stages.append(
                StageView(f"rung{g}", draw(st.sampled_from((StageStatus.OPEN, StageStatus.SEALED))), 0.0, tuple(jobs))
            )
        later = tuple(
            Rung(f"later{r}", draw(st.integers(1, 4)), draw(st.integers(1, 50))) for r in range(draw(st.integers(0, 2)))
        )
        studies.append(StudyView(f"study{s}", draw(_weights), 0.0, tuple(stages), later))
    return Snapshot(fabric, tuple(studies))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a scenario of one to three studies of one to three stages on a small fabric."""
    fabric = draw(st.sampled_from(FABRICS))
    studies: list[StudyPlan] = []
    for s in range(draw(st.integers(1, 3))):
        stages = tuple(
            StagePlan(f"rung{g}", tuple(draw(job_specs(fabric, f"trial{j}")) for j in range(draw(st.integers(1, 3)))))
            for g in range(draw(st.integers(1, 3)))
        )
        studies.append(StudyPlan(f"study{s}", draw(_weights), draw(st.sampled_from((0.0, 0.0, 0.3))), stages))
    return Scenario("drawn", fabric, seed=0, queues=draw(st.integers(1, 8)), studies=tuple(studies))


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[Demand], list[float]]:
    """Draw up to twelve demands in up to four classes on one to five links of very different capacities."""
    capacity = draw(st.lists(st.sampled_from((1.0, 2e7, 2e7, 1e12)), min_size=1, max_size=5))
    uses = st.sampled_from((1.0, 1.0, 1.0 + 0.0218, 0.0218, 0.1))
    usage = st.dictionaries(st.integers(0, len(capacity) - 1), uses, max_size=4)
    demands = draw(st.lists(st.builds(Demand, usage, st.integers(0, 3)), max_size=12))
    return demands, capacity
