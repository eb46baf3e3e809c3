"""A PyTorch program (DDP on gloo) that knows two signals and a checkpoint path, as `LocalEngine` expects of one.

What a rank was signalled, and whether a gate (a file with the iteration not to be gone beyond) is in the way, is agreed on by
an all-reduce before each step's, so that all ranks stop after the same one. Every rank draws the whole batch and computes its
part, so that runs on different numbers of ranks see the same samples.
"""

import argparse
import hashlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from beamer.testing.trainer import CHECKPOINT, GATE_S, SHUT, STOP, SignalRequests, is_shut
from topologies.emulation.digits_training import LayersTraining
from topologies.emulation.gloo import leave

FEATURES = 8
BATCH = 24  # samples of a step, all ranks together: divides by 1 to 4 ranks
FLAGS = (STOP, CHECKPOINT, SHUT)


def train(iterations: int, width: int, trace: Path | None, gate: Path | None, timeout_s: float | None) -> None:
    """Train as one rank, from the checkpoint, if there is one, to the end or until asked to stop.

    width: of the two hidden layers. trace: file to which rank 0 appends a digest of the parameters after every step.
    timeout_s: of collectives, None: PyTorch's own.
    """
    asked = SignalRequests()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=None if timeout_s is None else timedelta(seconds=timeout_s))
    rank, world = distributed.get_rank(), distributed.get_world_size()
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, width),
        torch.nn.Tanh(),
        torch.nn.Linear(width, 1),
    )
    training = LayersTraining(model, 0.05, 0.9, Path(os.environ["BEAMER_CHECKPOINT"]))
    parallel = DistributedDataParallel(model)
    while training.done < iterations:
        mine = asked.take() | (SHUT if rank == 0 and is_shut(gate, training.done) else 0)
        flags = torch.tensor([float(bool(mine & flag)) for flag in FLAGS])
        distributed.all_reduce(flags)
        stops, saves, is_held = (flags > 0).tolist()
        if stops:
            break
        if saves and rank == 0:
            training.save()
        if is_held:
            time.sleep(GATE_S)
            continue
        batch = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(training.done))
        part = batch.chunk(world)[rank]
        loss = ((parallel(part) - part.sum(dim=1, keepdim=True)) ** 2).mean()
        training.step(loss, model)
        if rank == 0:
            if trace:
                digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
                with trace.open("a") as file:
                    file.write(json.dumps({"iteration": training.done, "world": world, "digest": digest}) + "\n")
            print(json.dumps({"iteration": training.done, "loss": loss.item()}), flush=True)
    if rank == 0:
        training.save()
    del parallel  # Otherwise the group's last threads may wait for the interpreter's lock, and DDP, with that lock, for them.
    distributed.destroy_process_group()


def main() -> None:
    """Train as the command line and the environment say."""
    parser = argparse.ArgumentParser(prog="python -m eval.gpu.ddp_trainer", description=__doc__)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--gate", type=Path)
    parser.add_argument("--timeout-s", type=float)
    chosen = parser.parse_args()
    train(chosen.iterations, chosen.width, chosen.trace, chosen.gate, chosen.timeout_s)


if __name__ == "__main__":
    main()
    leave()
