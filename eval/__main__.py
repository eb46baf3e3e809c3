"""`python -m eval EXPERIMENT`: runs an experiment and prints its table. Runs that were interrupted go on with what they had."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from beamer.errors import InputError
from beamer.lazy_commands import Command, errors_as_exit_codes, run_commands
from beamer.validation import input_error

ABOUT = "Experiments, one command each."
CALCULATED = frozenset(
    ("asynchronous", "gpu", "joint", "loss-noise", "network", "noise", "peers", "rates", "recheck", "trials")
)
"""Experiments whose figures follow from what they calculate, to the last digit, and not from this machine's times."""
NOT_EVERYWHERE = "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
"""Instructions that NumPy uses where the processor has them (AVX-512), and then rounds otherwise.

Policies that fit curves decide otherwise with it: up to 3 % of a mean under `convergence` in Pollux' simulator. Each version of
NumPy knows some of the names, and passes over the others with an `ImportWarning`. The simulators of others have older versions.
"""
KERNEL_EVERYWHERE = "Haswell"
"""The kernel of OpenBLAS where the processor has AVX-512, for which it has others that round otherwise.

Each such processor has the instructions of this one. Others take it, or one with the same results, by themselves.
"""
PROCESSOR = Path("/proc/cpuinfo")
COMMANDS = {
    "asynchronous": Command(
        "eval.asynchronous.command:asynchronous",
        "testing",
        "Compare network policies on searches without barriers, in the simulator.",
    ),
    "bench": Command(
        "eval.bench:bench",
        "testing",
        "Measure ordering, trace replay, simulation at scale, a controller under load and decisions of one level and of both.",
    ),
    "emulation": Command(
        "eval.emulation:emulation",
        "emulation",
        "Compare network policies on drawn works, emulated and simulated.",
    ),
    "engines": Command(
        "eval.engines.command:engines",
        "testing",
        "Take ports, kill ranks, and run programs that hang, lie and crash in one search; ends with 1 if it shows.",
    ),
    "faults": Command(
        "eval.faults.command:faults",
        "emulation",
        "Make faults happen to controllers, their journals and their peers; ends with 1 if anything was lost or failed.",
    ),
    "fuzz": Command(
        "eval.fuzz.command:fuzz",
        "emulation",
        "Send hostile input to whatever of the controller listens; ends with 1 if any of it was disturbed.",
    ),
    "gpu": Command(
        "eval.gpu.command:gpu",
        "testing",
        "Compare GPU policies on the conditions of the claims published about them, in the simulator.",
    ),
    "joint": Command(
        "eval.joint.command:joint",
        "testing",
        "Compare pairs of a GPU policy and a network policy on searches that share GPUs and network, in the simulator.",
    ),
    "loss-noise": Command(
        "eval.loss_noise.command:loss_noise",
        "testing",
        "Measure how much the losses of models that train deviate from their trend, on fresh samples and on finite data.",
    ),
    "network": Command(
        "eval.network.command:network",
        "testing",
        "Compare network policies with each other and with the best lower bound, in the simulator.",
    ),
    "noise": Command(
        "eval.noise.command:noise",
        "testing",
        "Compare GPU policies on searches whose losses are noisy, in virtual time, with the losses of real training.",
    ),
    "nvidia": Command(
        "eval.nvidia.command:nvidia",
        "testing",
        "Measure suspending, checkpoints, starts and searches on an NVIDIA GPU; ends with 1 where something does not hold.",
    ),
    "packets": Command(
        "eval.packets:packets",
        "emulation",
        "Draw the packets of two searches on the link where they meet, under `fair` and `beamer`.",
    ),
    "peers": Command(
        "eval.peers.command:peers",
        "testing",
        "Compare our policies with those of other projects inside the simulators of these projects.",
    ),
    "processes": Command(
        "eval.gpu.processes:processes",
        "testing",
        "Measure what suspending, resuming and restarting a job of real processes takes on this machine.",
    ),
    "rates": Command(
        "eval.rates.command:rates",
        "testing",
        "Compare classes, ceilings on senders and both with the ideal order, in the simulator.",
    ),
    "rates-emulation": Command(
        "eval.rates_emulation:rates_emulation",
        "emulation",
        "Compare classes, ceilings on senders and both over repeated emulated runs.",
    ),
    "recheck": Command(
        "eval.recheck.command:recheck",
        "dev",
        "Run cells of the committed tables again; ends with 1 if a figure is another one.",
    ),
    "report": Command(
        "eval.report.command:report",
        "dev",
        "Write every figure of README and docs on one page, with where it is from, beside what others have published.",
    ),
    "sct": Command(
        "eval.sct:sct",
        "emulation",
        "Compare mean stage completion times over repeated emulated runs.",
    ),
    "starts": Command(
        "eval.gpu.starts:starts",
        "testing",
        "Compare searches whose programs start ahead of their turn with the same ones without that, on real processes.",
    ),
    "training": Command(
        "eval.training:training",
        "digits",
        "Compare pairs of a GPU policy and a network policy on searches that train, emulated and simulated.",
    ),
    "trials": Command(
        "eval.trials.command:trials",
        "testing",
        "Compare `beamer` with variants of itself and with its plan, in the simulator.",
    ),
}


def _calculate_as_everywhere() -> None:
    """Leave out instructions by which figures differ from machine to machine; NumPy is imported with the experiment.

    What the environment says stands.
    """
    os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", NOT_EVERYWHERE)
    with suppress(OSError):
        if " avx512f " in PROCESSOR.read_text():
            os.environ.setdefault("OPENBLAS_CORETYPE", KERNEL_EVERYWHERE)


def main() -> None:
    """Run the command line; findings in a config file are errors of its option, and SIGTERM ends it as an interrupt does."""
    if sys.argv[1:] and sys.argv[1] in CALCULATED:
        _calculate_as_everywhere()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # Whatever was started is ended on the way out.
    with errors_as_exit_codes("eval"):
        try:
            run_commands("python -m eval", ABOUT, COMMANDS)
        except ValidationError as error:
            found = input_error(error)
            raise InputError(found.field or "--config", found.value, found.expected) from error


if __name__ == "__main__":
    main()
