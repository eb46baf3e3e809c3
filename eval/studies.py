"""Every study whose figures are committed as a file of its command, but for those of GPU policies (`eval/gpu/documents.py`)."""

from typing import Any

from eval.asynchronous.report import COMMITTED as ASYNCHRONOUS
from eval.bench.levels import COMMITTED as BENCH
from eval.committed import Committed
from eval.emulation import COMMITTED as EMULATION
from eval.engines.report import COMMITTED as ENGINES
from eval.faults.report import COMMITTED as FAULTS
from eval.joint.report import COMMITTED as JOINT
from eval.network.results_file import COMMITTED as NETWORK
from eval.rates.report import COMMITTED as RATES
from eval.training import COMMITTED as TRAINING
from eval.trials.report import COMMITTED as TRIALS

STUDIES: tuple[Committed[Any], ...] = (ASYNCHRONOUS, BENCH, EMULATION, ENGINES, FAULTS, JOINT, NETWORK, RATES, TRAINING, TRIALS)
