"""What GPU policies decide on, and what they decide: nodes, jobs with what they reported, grants.

All of it is frozen. Progress is counted in *iterations of the requested batch size*: what a step of another batch size is worth
is for the job to say (its samples over `batch_size`, less what a large batch loses). Units: seconds, GPUs, samples.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from pydantic import ConfigDict

from beamer.errors import InputError
from beamer.studies.model import MAX_STEPS, UNKNOWN, Profile
from beamer.studies.registration import check_profile

MAX_LOSS = 3.4028235e38
"""The largest number of 32 bits: losses are computed in so many or fewer, so that one beyond it is an overflow."""
ROUNDING = 1e-9  # Sums of fractional demands, in cores, may be off by this much.


@dataclass(frozen=True)
class Node:
    """A machine. cpus: cores that workers and parameter servers may be given; 0 where no job asks for any."""

    name: str
    gpus: int
    cpus: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """The nodes that are up, in the order in which they are listed."""

    nodes: tuple[Node, ...]

    @cached_property
    def node(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    def in_order(self, counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return counts by node as the cluster lists its nodes."""
        of_node = dict(counts)
        return [(name, of_node[name]) for name in self.node if name in of_node]


@dataclass(frozen=True)
class Costs:
    """What changing a job's GPUs takes, seconds in which it computes nothing.

    suspend_s, resume_s: memory kept, or moved to the host and back. restart_s: from a checkpoint, on other GPUs or another
    number of them. 0: nothing, or not measured.
    batch_s: another batch size on the same GPUs; None: a restart.
    """

    suspend_s: float = 0.0
    resume_s: float = 0.0
    restart_s: float = 0.0
    batch_s: float | None = None

    @property
    def change_s(self) -> float:
        """What it takes to suspend a job and to resume it, or to restart it where no resumption was measured."""
        return self.suspend_s + (self.resume_s or self.restart_s)

    @property
    def rebatch_s(self) -> float:
        """What another batch size on the same GPUs takes."""
        return self.restart_s if self.batch_s is None else self.batch_s


NOT_MEASURED = Costs()
"""Those of a job before its engine has reported any: as if changes took nothing, so that none is kept back for a guess."""

_ZERO_OR_MORE = (
    "min_gpus", "max_gpus", "max_batch_size", "max_local_batch_size", "learning_rate", "max_learning_rate", "worker_cpus",
    "server_cpus",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What a trial asks for."""

    iterations: int
    """Iterations after which it is complete, from its beginning; to a policy, those of its present target."""
    gpus: int = 1
    """GPUs that a policy of fixed sizes grants."""
    min_gpus: int = 0
    """The fewest GPUs that it can run on; 0: `gpus`."""
    max_gpus: int = 0
    """The most GPUs that it can run on; 0: `gpus`."""
    gang: bool = True
    """Whether it holds all its GPUs or none; otherwise it may hold some while it waits for `min_gpus`."""
    epoch: int = 1
    """Iterations between two reports."""
    batch_size: int = 1
    """Samples of an iteration, all workers together."""
    max_batch_size: int = 0
    """The largest batch size that it may be run at; 0: `batch_size`."""
    max_local_batch_size: int = 0
    """The largest batch size per GPU; 0: no limit."""
    accumulates: bool = False
    """Whether a GPU takes more than `max_local_batch_size` in several equal sub-steps.

    It adds up their gradients before the workers synchronise, once a step.
    """
    learning_rate: float = 0.0
    """The learning rate at `batch_size`; 0: unknown."""
    max_learning_rate: float = 0.0
    """The largest learning rate; 0: unknown."""
    target_loss: float | None = None
    """The loss at which its search has reached its goal; None: not stated."""
    target_accuracy: float | None = None
    """The accuracy at which its search has reached its goal; None: not stated."""
    servers: bool = False
    """Whether parameter servers synchronise it, each beside its workers."""
    asynchronous: bool = False
    """Whether the servers do so with one worker at a time."""
    worker_cpus: float = 0.0
    """Cores of each worker."""
    server_cpus: float = 0.0
    """Cores of each server."""
    known_end: bool = True
    """Whether `iterations` is when it ends; otherwise a bound that nothing is known below."""
    traffic: Profile = UNKNOWN
    """What its workers do in a step on `gpus` GPUs, for the network level."""

    def __post_init__(self) -> None:
        for name in ("iterations", "gpus", "epoch", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(name, getattr(self, name), "at least 1")
        for name in _ZERO_OR_MORE:
            if not getattr(self, name) >= 0:
                raise InputError(name, getattr(self, name), "at least 0")
        if not self.least <= self.gpus <= self.most:
            raise InputError("gpus", self.gpus, f"{self.least} to {self.most}, from min_gpus to max_gpus")
        try:
            check_profile(self.traffic)
        except InputError as error:
            raise InputError(f"traffic.{error.field}", error.value, error.expected) from error

    @property
    def least(self) -> int:
        """The fewest GPUs that it runs on."""
        return self.min_gpus or self.gpus

    @property
    def most(self) -> int:
        """The most GPUs that it can use."""
        return self.max_gpus or self.gpus

    def sub_steps(self, gpus: int, batch_size: int = 0) -> int:
        """Return in how many sub-steps so many GPUs take a batch. batch_size: 0: the requested one."""
        if not (self.accumulates and self.max_local_batch_size):
            return 1
        return -(-(batch_size or self.batch_size) // (gpus * self.max_local_batch_size))


def check_request(request: Request, field: str) -> None:
    """Check that what a request asks for is within what arithmetic can hold. Raises `InputError` naming it below `field`."""
    for name in ("iterations", "gpus", "epoch", "batch_size", *_ZERO_OR_MORE):
        if not (value := getattr(request, name)) <= MAX_STEPS:
            raise InputError(f"{field}.{name}", value, f"at most {MAX_STEPS}")
    for name in ("target_loss", "target_accuracy"):
        if (target := getattr(request, name)) is not None and math.isnan(target):
            raise InputError(f"{field}.{name}", target, "a number, or no trial meets it")


@dataclass(frozen=True)
class Grant:
    """What a job is given: GPUs, one worker each, and parameter servers, by node in order of names.

    batch_size: of all workers together; 0: the requested one.
    """

    gpus: tuple[tuple[str, int], ...]
    servers: tuple[tuple[str, int], ...] = ()
    batch_size: int = 0

    @classmethod
    def of(cls, gpus: Mapping[str, int], servers: Mapping[str, int] | None = None, batch_size: int = 0) -> "Grant":
        """Return a grant of so many GPUs and servers by node; nodes with none are left out."""
        return cls(_by_node(gpus), _by_node(servers or {}), batch_size)

    @cached_property
    def size(self) -> int:
        """GPUs in all."""
        return sum(count for _, count in self.gpus)

    @property
    def served(self) -> int:
        """Parameter servers in all."""
        return sum(count for _, count in self.servers)

    @property
    def nodes(self) -> int:
        """Nodes on which it has GPUs."""
        return len(self.gpus)


def _by_node(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((node, count) for node, count in counts.items() if count))


Allocation = Mapping[str, Grant]
"""What every job is given that is given anything, by key: the whole cluster's, whatever was granted before."""


@dataclass(frozen=True)
class Report:
    """A job's report of its progress."""

    __pydantic_config__ = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    at_s: float
    """When it was made."""
    iteration: float
    """Iterations done."""
    loss: float
    """The loss, which may be infinite or not a number."""
    service_s: float
    """Seconds that it has computed for them, changes of its GPUs left out."""
    accuracy: float | None = None
    """The accuracy; None: not reported."""
    gradient_sqr: float = 0.0
    """The squared norm of its gradient; 0: not measured."""
    gradient_var: float = 0.0
    """The variance of a gradient of `batch_size`; 0: not measured."""

    @property
    def in_range(self) -> "Report":
        """It, with an infinite loss where that is an overflow."""
        return replace(self, loss=math.copysign(math.inf, self.loss)) if abs(self.loss) > MAX_LOSS else self


@dataclass(frozen=True)
class Speed:
    """How long a step took on a shape of grant."""

    gpus: int
    """GPUs of the grant."""
    nodes: int
    """Nodes that they are on."""
    servers: int
    """Parameter servers."""
    batch_size: int
    """Samples of a step, all workers together."""
    step_s: float
    """Seconds of a step."""
    sync_s: float = 0.0
    """Seconds of the step that were spent synchronising; 0: not measured."""
    sub_steps: int = 1
    """Equal parts in which every GPU took its share of the batch, one after the other."""


@dataclass(frozen=True)
class Stage:
    """The stage that a job is judged in."""

    study: str
    """The study's name."""
    name: str
    """The stage's name, "" where no stage waits for the job."""
    jobs: int = 1
    """Jobs that have joined it."""
    keeps: int | None = None
    """Jobs of them that continue in the study's next rung; None: not declared."""
    losses: tuple[float, ...] = ()
    """Losses, there, of the jobs that have come to its end."""
    sealed: bool = False
    """Whether no more jobs join."""

    has_barrier: ClassVar[bool] = True
    """Whether its jobs wait for each other at its end."""


@dataclass(frozen=True)
class RungWithoutBarrier(Stage):
    """A rung at which no job waits for others, as of asynchronous successive halving [Li et al. 2020]."""

    has_barrier = False


@dataclass(frozen=True)
class Job:
    """A trial that wants GPUs, or may want them again. Its key is the trial's.

    No field has a default: what is left out would be a statement about the job's past. `Job.waiting` is one that has none.
    """

    key: str
    """The trial's key."""
    request: Request
    """What it asks for."""
    submitted_s: float
    """When it asked for GPUs."""
    stage: Stage
    """The stage that it is judged in."""
    reports: tuple[Report, ...]
    """Its reports, oldest first."""
    speeds: tuple[Speed, ...]
    """The mean of the last five speeds of each shape that was measured."""
    grant: Grant | None
    """What it holds, None while it waits or is suspended."""
    last: Grant | None
    """What it held last, on whose GPUs its memory may still lie."""
    since_s: float
    """When `grant` last changed, or it asked for GPUs again after a rest."""
    service_s: float
    """Seconds on GPUs until `since_s`."""
    gpu_s: float
    """GPU-seconds until `since_s`."""
    costs: Costs
    """What changing its GPUs takes."""
    heard_s: float
    """Seconds on GPUs when it last reported or failed."""

    @classmethod
    def waiting(cls, key: str, request: Request, submitted_s: float, stage: Stage, costs: Costs = NOT_MEASURED) -> "Job":
        """Return a job that has asked for GPUs at `submitted_s`, and has had none yet."""
        return cls(key, request, submitted_s, stage, (), (), None, None, submitted_s, 0.0, 0.0, costs, 0.0)

    def regranted(self, grant: Grant | None, at_s: float) -> "Job":
        """Return it with other GPUs, or none, from `at_s` on."""
        return replace(
            self,
            grant=grant,
            last=grant or self.last,
            since_s=at_s,
            service_s=self.service_at(at_s),
            gpu_s=self.gpu_seconds_at(at_s),
        )

    def heard_at(self, at_s: float, *reports: Report) -> "Job":
        """Return it with what it reported at `at_s`; without reports, as one that failed then, or said that it goes on."""
        return replace(self, reports=(*self.reports, *reports), heard_s=self.service_at(at_s))

    @property
    def done(self) -> float:
        """Iterations done, as last reported."""
        return self.reports[-1].iteration if self.reports else 0.0

    @property
    def remaining(self) -> float:
        """Iterations still to do, as last reported; where `request.known_end` is false, only the most that it may be."""
        return max(self.request.iterations - self.done, 0.0)

    def service_at(self, now: float) -> float:
        """Return the seconds that it has been on GPUs."""
        return self.service_s + (max(now - self.since_s, 0.0) if self.grant else 0.0)

    def unheard_at(self, now: float) -> float:
        """Return the seconds that it has been on GPUs since it last reported or failed."""
        return self.service_at(now) - self.heard_s

    def gpu_seconds_at(self, now: float) -> float:
        """Return the GPU-seconds that it has had."""
        return self.gpu_s + (max(now - self.since_s, 0.0) * self.grant.size if self.grant else 0.0)


def check_nodes(nodes: Iterable[Node]) -> None:
    """Check that a cluster may consist of `nodes`. Raises `InputError`."""
    seen: set[str] = set()
    for i, node in enumerate(nodes):
        if not node.name or node.name in seen:
            raise InputError(f"nodes[{i}].name", node.name, "a name that no other node has")
        seen.add(node.name)
        if node.gpus < 0:
            raise InputError(f"nodes[{i}].gpus", node.gpus, "at least 0")
        if not 0 <= node.cpus < math.inf:
            raise InputError(f"nodes[{i}].cpus", node.cpus, "a finite number of at least 0")


def check_allocation(cluster: Cluster, jobs: Iterable[Job], allocation: Allocation) -> None:
    """Check that `allocation` can be carried out: known jobs and nodes, no more than each node has, gangs whole.

    Raises `InputError` naming the first grant that cannot be.
    """
    known = {job.key: job for job in jobs}
    gpus: dict[str, int] = {}
    cpus: dict[str, float] = {}
    for key, grant in allocation.items():
        where = f"allocation[{key}]"
        if key not in known:
            raise InputError(where, grant, "a job that wants GPUs")
        request = known[key].request
        least = request.least if request.gang else 1
        if not least <= grant.size <= request.most:
            raise InputError(f"{where}.gpus", grant.size, f"{least} to {request.most}")
        for counts, cores, total in ((grant.gpus, request.worker_cpus, True), (grant.servers, request.server_cpus, False)):
            for node, count in counts:
                if node not in cluster.node:
                    raise InputError(where, node, "a node that is up")
                if count < 1:
                    raise InputError(f"{where}[{node}]", count, "at least 1")
                cpus[node] = cpus.get(node, 0.0) + count * cores
                if total:
                    gpus[node] = gpus.get(node, 0) + count
    for name, used in gpus.items():
        if used > cluster.node[name].gpus:
            raise InputError(f"allocation on {name}", used, f"at most {cluster.node[name].gpus} GPUs")
    for name, cores in cpus.items():
        if cores > cluster.node[name].cpus + ROUNDING:
            raise InputError(f"allocation on {name}", cores, f"at most {cluster.node[name].cpus} cores")
