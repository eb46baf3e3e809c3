"""What changing a job's GPUs takes, for simulations: of a PyTorch DDP job, measured here or, without PyTorch, as committed."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from beamer.errors import InputError
from beamer.gpu.model import Costs
from beamer.yaml_files import read_json
from eval.gpu.processes import RANKS, TRAINERS, measure
from eval.machine import Machine

TRAINER = "ddp"
RECORDED = Path(__file__).parent.parent / "results" / "processes.json"
"""As `python -m eval processes --json` writes it."""
SUSPENSIONS, RESTARTS = 50, 3  # of a measurement that a study begins with: half a minute


@dataclass(frozen=True)
class MeasuredCosts:
    """The medians for a job of two ranks. source: trainer, ranks, machine, and whether it was measured in this run."""

    costs: Costs
    source: str


def restart_costs(recorded: Path = RECORDED) -> MeasuredCosts:
    """Measure the costs of a DDP job on this machine where PyTorch is installed, otherwise read those of a file."""
    if not TRAINERS[TRAINER].is_installed:
        return recorded_costs(recorded)
    machine = Machine.here()
    found = measure(TRAINER, suspensions=SUSPENSIONS, restarts=RESTARTS, sizes=((RANKS, RANKS),))
    costs = Costs(found.suspend.p50_s, found.resume.p50_s, found.restart.p50_s)
    return MeasuredCosts(costs, _source(costs, machine.processor, machine.cores, "measured in this run"))


def recorded_costs(path: Path = RECORDED) -> MeasuredCosts:
    """Read the costs of a DDP job from a file of `python -m eval processes`. Raises `InputError` for one without it."""
    document = read_json(path, "the results")
    found = [one for one in document["measurements"] if one["trainer"] == TRAINER and one["ranks"] == RANKS]
    if not found:
        raise InputError(str(path), sorted({one["trainer"] for one in document["measurements"]}), f"trainer {TRAINER!r}")
    restarts = [
        cost["restart"]["p50_s"]
        for one in found
        for cost in one["restarts"]
        if (cost["before"], cost["after"]) == (RANKS, RANKS)
    ]
    suspend, resume = (median(one[change]["p50_s"] for one in found) for change in ("suspend", "resume"))
    costs = Costs(suspend, resume, median(restarts))
    machine = document["machine"]
    return MeasuredCosts(costs, _source(costs, machine["processor"], machine["cores"], f"recorded in {path.name}"))


def _source(costs: Costs, processor: str, cores: int, how: str) -> str:
    seconds = f"suspend {1e3 * costs.suspend_s:.1f} ms, resume {1e3 * costs.resume_s:.1f} ms, restart {costs.restart_s:.2f} s"
    return f"{TRAINERS[TRAINER].title}, {RANKS} ranks on {cores} cores ({processor}), {how}: {seconds}"
