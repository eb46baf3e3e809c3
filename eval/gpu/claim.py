"""The seam of claims: what is run, by cell, contender and seed, and what is shown of it.

A claim is a frozen model, whose fields are its section of the config, in one file, with one line in the registry of
`eval.gpu.claims`. A run draws its work from the seed alone, so that all contenders are given the same and compare in pairs.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from matplotlib.figure import Figure
from pydantic import Field
from rich.table import Table

from beamer.errors import InputError
from beamer.gpu.model import Costs, Node, Request
from beamer.gpu.policies import GpuPolicy
from beamer.gpu.tuners import Tuner
from beamer.sim.gpu import Arrival, simulate_gpus
from eval.config_section import ConfigSection
from eval.configured_policy import configured_policy
from eval.gpu.knowledge import Knowledge, knowledge
from eval.gpu.measured_run import MeasuredGpuRun, TimedGpuPolicy

Figures = Mapping[str, float]
"""A run's, by metric."""

CellResults = Mapping[str, Sequence[Figures]]
"""By contender, a run per seed."""

Results = Mapping[str, CellResults]
"""By cell."""


class CostsConfig(ConfigSection):
    """What changing a job's GPUs takes, seconds, as stated in the config."""

    suspend_s: float = 0.0
    resume_s: float = 0.0
    restart_s: float = 0.0
    batch_s: float | None = None

    def costs(self) -> Costs:
        """Return them as the simulator takes them."""
        return Costs(self.suspend_s, self.resume_s, self.restart_s, self.batch_s)


class GpuContender(ConfigSection):
    """A policy with its parameters. label: what tables call it; "": the policy's name, then the parameters.

    costs: what changes take under it; None: what they take under the others. tuned: whether its jobs are submitted at the sizes
    and batch sizes that their users chose, where the claim has both; otherwise both are left to the policy.
    blind: whether its jobs state their iterations as a bound alone, and not as their end. target: whether they state the target
    of their search.
    """

    policy: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    label: str = ""
    costs: CostsConfig | None = None
    tuned: bool = True
    blind: bool = False
    target: bool = True

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.label or " ".join([self.policy, *(f"{key}={value}" for key, value in self.parameters.items())])

    def build(self) -> GpuPolicy[Any]:
        """Return the policy."""
        return configured_policy(self.policy, self.parameters)

    def told(self, request: Request) -> Request:
        """Return a request with what the policy is told of it."""
        if self.blind:
            request = replace(request, known_end=False)
        return request if self.target else replace(request, target_loss=None, target_accuracy=None)

    def simulate(
        self, nodes: Sequence[Node], arrivals: Sequence[Arrival], seed: int, tuner: Tuner | None = None
    ) -> MeasuredGpuRun:
        """Run jobs under the policy, which is told what it may know of them."""
        told = [replace(one, job=replace(one.job, request=self.told(one.job.request))) for one in arrivals]
        policy = TimedGpuPolicy(self.build())
        run = simulate_gpus(policy, nodes, told, tuner, seed=seed)
        return MeasuredGpuRun(run.policy, run.jobs, run.end_s, tuple(policy.seconds))


def contenders(policies: Sequence[str | GpuContender]) -> tuple[GpuContender, ...]:
    """Return what a list in the config names: policies by name, or with parameters."""
    return tuple(GpuContender(policy=one) if isinstance(one, str) else one for one in policies)


@dataclass(frozen=True)
class Inputs:
    """What a run may use beside its seed.

    data: folder of the measured data; None: none. costs: of changing GPUs as measured on real processes; None: not measured.
    """

    data: Path | None = None
    costs: Costs | None = None

    def describe_costs(self) -> str:
        """Return where the costs of changing GPUs are from."""
        if not self.costs:
            return "costs as stated in the config, not measured"
        one = self.costs
        shown = f"suspend {1000 * one.suspend_s:.1f} ms, resume {1000 * one.resume_s:.1f} ms, restart {one.restart_s:.2f} s"
        return f"costs measured on a PyTorch DDP job of two ranks ({shown})"

    def costs_of(self, contender: GpuContender, stated: CostsConfig) -> Costs:
        """Return what changes take: as the contender has it, else as measured, else as stated."""
        return contender.costs.costs() if contender.costs else self.costs or stated.costs()

    def folder(self, name: str) -> Path | None:
        """Return a folder of the measured data, None if none is given. Raises `InputError` if it is not in there."""
        folder = self.data / name if self.data else None
        if folder and not folder.is_dir():
            raise InputError("--data", str(self.data), f"a folder that holds {name}/")
        return folder


@dataclass(frozen=True)
class Metric:
    """A figure that is better the lower it is.

    key: in `Figures`. scale: from its unit to the one shown. compared: whether its ratios are shown as well.
    """

    key: str
    title: str
    scale: float = 1.0
    compared: bool = True


LOST = Metric("lost", "GPU time that changes take (%)", 100.0, False)


class Claim(ConfigSection, ABC):
    """A published claim, and the runs that show how far it holds here.

    name: on the command line. title: of its tables. published: what its authors say, quoted beside the results, never among
    them. data: folder of the measured data that it uses; "": none. recorded: committed results that its runs read. processes:
    whether what changes take is measured on real processes where that can be. metrics: what policies are judged by. end: what
    the iterations are that its jobs state. target: whether its jobs state one. seeds: how many, at most; 0: as many as the
    study has.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    published: ClassVar[Mapping[str, str]]
    data: ClassVar[str] = ""
    recorded: ClassVar[tuple[Path, ...]] = ()
    processes: ClassVar[bool] = False
    metrics: ClassVar[tuple[Metric, ...]]
    end: ClassVar[str] = "the true end"
    target: ClassVar[bool] = False

    policies: tuple[str | GpuContender, ...]
    seeds: int = 0

    @abstractmethod
    def cells(self) -> tuple[str, ...]:
        """Return the names of its cells, in the order of tables."""

    def contenders(self, cell: str) -> tuple[GpuContender, ...]:
        """Return who runs in a cell."""
        return contenders(self.policies)

    def judged(self) -> tuple[str, ...]:
        """Return the cells in which policies are compared, and not the parameters of one."""
        return self.cells()

    def knows(self, contender: GpuContender) -> Knowledge:
        """Return what a contender uses of what its jobs state about their future."""
        return knowledge(contender.policy, self.end, self.target and contender.target, contender.blind)

    def known(self, cell: str) -> Mapping[str, Knowledge]:
        """Return what each contender of a cell knows, by name."""
        return {contender.name: self.knows(contender) for contender in self.contenders(cell)}

    def check_data(self, inputs: Inputs) -> None:
        """Check that the measured data have what its runs need, before the first. Raises `InputError`."""
        if self.data:
            inputs.folder(self.data)

    @abstractmethod
    def run(self, cell: str, contender: GpuContender, seed: int, inputs: Inputs) -> Figures:
        """Run a contender on the work of a seed and return its figures."""

    @abstractmethod
    def describe(self, inputs: Inputs) -> str:
        """Return one line about the data that is used."""

    def figures(self, seeds: Sequence[int], inputs: Inputs) -> Mapping[str, Any]:
        """Return what it reports besides runs of policies, as plain JSON."""
        return {}

    @abstractmethod
    def tables(self, results: Results) -> list[Table]:
        """Return the tables of its results."""

    def further(self, figures: Mapping[str, Any], results: Results) -> list[Table]:
        """Return the tables of `figures`."""
        return []

    @abstractmethod
    def draw(self, results: Results, figure: Figure) -> None:
        """Draw its results."""


SENSITIVITY = "parameters"


class ComparisonClaim(Claim, ABC):
    """A claim with one cell in which policies are compared, and one for the parameters of some.

    cell: the first one's name. nodes; gpus: of each. jobs: of a run. costs: of changing GPUs. sensitivity: the second's runs.
    """

    cell: ClassVar[str]

    nodes: int
    gpus: int
    jobs: int
    costs: CostsConfig
    sensitivity: tuple[str | GpuContender, ...]

    def cells(self) -> tuple[str, ...]:
        """Return both."""
        return (self.cell, SENSITIVITY)

    def judged(self) -> tuple[str, ...]:
        """Return the first."""
        return (self.cell,)

    def contenders(self, cell: str) -> tuple[GpuContender, ...]:
        """Return the policies of a cell."""
        return contenders(self.sensitivity if cell == SENSITIVITY else self.policies)
