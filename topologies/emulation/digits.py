"""A program for `beamer schedule` that trains: a small convolutional network on scikit-learn's digits, by DDP on gloo.

    python -m topologies.emulation.digits --iterations 40 --compute-s 0.6 --learning-rate 0.1 --channels 8 --hidden 463

It is launched as `torchrun` would (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), one process per GPU, and knows two signals and
a checkpoint path. The gradient is averaged over the ranks once an iteration; what signals asked of any rank is averaged with
it, so that all ranks stop, or write a checkpoint, after the same one.

Losses follow from the configuration and the samples seen: it seeds the weights and the order of the samples, and a batch has
the same samples on any number of ranks, so that a change of their number changes results by rounding alone. How long an
iteration takes does not follow from this machine's processors, which many ranks share: of a GPU that computes for `compute_s`,
what is left when the gradient is there is waited for before it is sent.

gloo's sockets cannot be prepared here: congestion control and largest window are those of the host's route.
"""

import os
from collections.abc import Sequence

from beamer.testing.trainer import SignalRequests
from topologies.emulation.digits_data import DigitsOptions
from topologies.emulation.gloo import leave
from topologies.emulation.program_options import parsed


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as one rank, as the environment and the command line say."""
    asked = SignalRequests()
    options = parsed(DigitsOptions, "topologies.emulation.digits", __doc__, arguments)
    # This imports PyTorch; signals that come meanwhile are already noted.
    from topologies.emulation.digits_training import train

    train(options, os.environ, asked)


if __name__ == "__main__":
    main()
    leave()
