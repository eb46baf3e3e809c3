"""Whether our simulator and Pollux' own agree: the same policies on the same workloads in both."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean

from rich.table import Table

from beamer.gpu.policies import gpu_policy
from eval.gpu.claim import GpuContender
from eval.gpu.results_file import ClaimResults
from eval.peers.contender import PeerContender
from eval.peers.results_file import PeerResults

BASE = "pollux"  # Mean completion times are relative to this policy of ours, with free sizes.


@dataclass(frozen=True)
class Agreement:
    """A policy of ours in both simulators. here, there: its mean completion time relative to that of `BASE`."""

    contender: PeerContender
    here: float
    there: float


def agreements(claim: ClaimResults, peer: PeerResults) -> tuple[list[str], list[Agreement]]:
    """Return the workloads that both have run, and the policies that ran with the same parameters, knowledge and sizes in both.

    claim: on Pollux' workloads, of which seed i has the i-th as it was published. Ratios are geometric means over workloads.
    """
    [(cell, runs)] = [(cell, claim.cells[cell]) for cell in claim.claim.judged() if cell in claim.cells]
    here = {name: {str(round(one["seed"])): one["jct_s"] for one in several} for name, several in runs.items()}
    there = {
        who: {workload: one.figures.mean_s for (workload, _), one in several.items()}
        for who, several in peer.runs.items()
        if not who.own
    }
    pairs = [
        (of.name, who)
        for of in claim.claim.contenders(cell)
        for who in there
        if of.name in here and _same(of, bool(claim.claim.known(cell)[of.name]), who)
    ]
    bases = [pair for pair in pairs if pair[1].policy == BASE and pair[1].sizes == "free"]
    if not bases:
        return [], []
    workloads = sorted(set.intersection(*(set(here[name]) & set(there[who]) for name, who in pairs)))

    def relative(times: dict[str, float], base: dict[str, float]) -> float:
        return exp(fmean(log(times[workload] / base[workload]) for workload in workloads))

    name, base = bases[0]
    found = [Agreement(who, relative(here[of], here[name]), relative(there[who], there[base])) for of, who in pairs]
    return workloads, sorted(found, key=lambda one: one.there)


def _same(of: GpuContender, knows: bool, who: PeerContender) -> bool:
    """Return whether a policy is told the same, has the same parameters and jobs of the same sizes in both."""
    if of.policy != who.policy or who.batches != "job":
        return False
    told = who.knows == ("true end" if knows else "nothing")
    sizes = who.sizes == ("users'" if of.tuned else "free")
    return told and sizes and gpu_policy(of.policy, **of.parameters) == gpu_policy(who.policy, **who.parameters)


def table(workloads: Sequence[str], found: Sequence[Agreement]) -> Table:
    """Return a row per policy, in the order of their times in the peer's simulator."""
    made = Table(
        title=f"Mean JCT, ratio to our {BASE} with free sizes, workloads {', '.join(workloads)}, here and in Pollux' simulator",
        title_justify="left",
    )
    for column in ("policy", "knows", "sizes"):
        made.add_column(column)
    for column in ("in ours", "in theirs", "in ours / in theirs"):
        made.add_column(column, justify="right")
    for one in found:
        who = one.contender
        made.add_row(who.name, who.knows, who.sizes, f"{one.here:.2f}", f"{one.there:.2f}", f"{one.here / one.there:.2f}")
    return made
