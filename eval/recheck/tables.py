"""Every committed results file: what of it is run again, what is too long for that, and what stands for it."""

from collections.abc import Mapping
from dataclasses import dataclass

from eval.recheck import gpu_level, in_peers, simulated
from eval.recheck.base import Cells

ON_REAL_THINGS = "it was measured on real processes, whose times are another machine's on the next one"


@dataclass(frozen=True)
class RecheckedTable:
    """A results file. cells: run again. left_out: what of it is not, with the reason and what stands for it; "": nothing."""

    cells: Cells
    left_out: str = ""


RECHECKED: Mapping[str, RecheckedTable] = {
    "asynchronous": RecheckedTable(
        simulated.asynchronous,
        "cells of four searches, and other seeds: the first seed of all smaller cells",
    ),
    "rates": RecheckedTable(simulated.rates, "other seeds: the first seed of every cell in every mode"),
    "network": RecheckedTable(
        simulated.network,
        "cells with more studies, and contenders that run for minutes: the others on the smallest cells; times of decisions",
    ),
    "loss-noise": RecheckedTable(simulated.loss_noise, "other seeds: the first problem of every model at each learning rate"),
    "noise": RecheckedTable(simulated.noise, "other seeds: the first seed of every search under every policy"),
    "trials": RecheckedTable(simulated.trials, "other seeds and cells: each variant on its first cell"),
    "joint": RecheckedTable(simulated.joint, "other seeds and cells: each pair and each variant on its first cell"),
    "emulation": RecheckedTable(
        simulated.emulation, "the emulated runs, of real packets and hours: tests/emulation, and what the simulator expects"
    ),
    "gpu": RecheckedTable(
        gpu_level.gpu,
        "other seeds and cells, and claims whose costs were measured and are not recorded: the first seed of each other claim",
    ),
    "gpu-tuning": RecheckedTable(gpu_level.gpu_tuning, "other policies and settings: the defaults of `convergence`"),
    "gpu-regions": RecheckedTable(gpu_level.gpu_regions, "other points of the grids, which take hours: the first of each"),
    "peers": RecheckedTable(
        in_peers.peers, "other workloads, and the peers' own policies, which take hours: the keys of all runs"
    ),
    "bench": RecheckedTable(gpu_level.bench, "times, which are the machine's: what decisions about the fewest trials concern"),
}
"""By name of the results file."""
NOT_RUN_AGAIN: Mapping[str, str] = {
    "engines": f"{ON_REAL_THINGS}: tests/processes runs the same search in small",
    "faults": f"{ON_REAL_THINGS}: tests/processes and tests/emulation make each fault happen once",
    "nvidia": f"{ON_REAL_THINGS}: tests/processes/test_eval_nvidia.py runs each part on a stand-in of the driver",
    "packets": f"{ON_REAL_THINGS}: tests/emulation runs searches that meet",
    "processes": f"{ON_REAL_THINGS}: tests/unit/eval/gpu/test_restart_costs.py",
    "ray": f"{ON_REAL_THINGS}: tests/ray runs such a search under each policy",
    "starts": f"{ON_REAL_THINGS}: tests/processes/test_started_ahead.py starts configurations ahead",
    "training": f"{ON_REAL_THINGS}: tests/emulation runs a search that trains",
}
"""Results files of which no cell can be made again to the digit, with the reason and what stands for them."""
