"""A PyTorch program (DDP on gloo) that knows two signals and a checkpoint path, for the test that runs it.

What it was signalled, and whether a gate (a file with the iteration not to be gone beyond) is in the way, is agreed on by an
all-reduce before each step's: so all ranks stop after the same one.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from beamer.testing.trainer import GATE_S, is_shut

BATCH = 24  # divides by every world size that the test uses


def main(iterations: int, trace: Path, gate: Path) -> None:
    received = {"stop": False}
    signal.signal(signal.SIGTERM, lambda *_: received.update(stop=True))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    checkpoint, done = Path(os.environ["BEAMER_CHECKPOINT"]), 0
    if checkpoint.exists():
        stored = torch.load(checkpoint)
        model.load_state_dict(stored["model"])
        optimizer.load_state_dict(stored["optimizer"])
        done = stored["done"]
    parallel = DistributedDataParallel(model)
    while done < iterations:
        flags = torch.tensor([float(received["stop"]), float(rank == 0 and is_shut(gate, done))])
        distributed.all_reduce(flags)
        stop, shut = flags.tolist()
        if stop:
            break
        if shut:
            time.sleep(GATE_S)
            continue
        batch = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(done))
        mine = batch.chunk(world)[rank]
        loss = ((parallel(mine) - mine.sum(dim=1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if rank == 0:
            digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
            with trace.open("a") as file:
                file.write(json.dumps({"iteration": done, "world": world, "digest": digest}) + "\n")
            print(json.dumps({"iteration": done, "loss": loss.item()}), flush=True)
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": done}, f"{checkpoint}.new")
        os.replace(f"{checkpoint}.new", checkpoint)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
