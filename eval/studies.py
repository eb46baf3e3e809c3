"""Every study whose figures are committed as a file of its command, but for those of GPU policies (`eval/gpu/documents.py`)."""

from typing import Any

from eval.asynchronous.command import ASYNCHRONOUS
from eval.bench.levels import COMMITTED as BENCH
from eval.committed import Committed
from eval.emulation import COMMITTED as EMULATION
from eval.engines.report import COMMITTED as ENGINES
from eval.faults.report import COMMITTED as FAULTS
from eval.joint.command import JOINT
from eval.loss_noise.command import LOSS_NOISE
from eval.network.command import NETWORK
from eval.noise.command import NOISE
from eval.nvidia.report import COMMITTED as NVIDIA
from eval.packets import COMMITTED as PACKETS
from eval.rates.command import RATES
from eval.training import COMMITTED as TRAINING
from eval.trials.command import TRIALS

AWAITED: tuple[Committed[Any], ...] = (NVIDIA,)
"""Studies of machines that are not always at hand: those without a results file have not been run on one yet."""
STUDIES: tuple[Committed[Any], ...] = (
    ASYNCHRONOUS.committed,
    BENCH,
    EMULATION,
    ENGINES,
    FAULTS,
    JOINT.committed,
    LOSS_NOISE.committed,
    NETWORK.committed,
    NOISE.committed,
    PACKETS,
    RATES.committed,
    TRAINING,
    TRIALS.committed,
    *(one for one in AWAITED if one.results.exists()),
)
