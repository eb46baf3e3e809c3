"""What a rank of `topologies.emulation.digits` does: the network, its optimizer and checkpoint, and the loop around DDP."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from beamer.testing.trainer import CHECKPOINT, STOP, SignalRequests
from topologies.emulation.digits_data import TRAINING, batch, digits, stored
from topologies.emulation.digits_options import DigitsOptions
from topologies.emulation.gloo import group_rank, interface_towards

FLAGS = (STOP, CHECKPOINT)
BUCKET_MB = 1024  # Any gradient is smaller, so it is sent as a whole, when its last part is there.
SETTLE_S = 1.0  # The first bytes are sent at least so long after connecting: connections are found and their rules installed.


class Network(nn.Module):  # type: ignore[misc]  # PyTorch's types are not followed
    """Two convolutions and two linear layers, and a parameter whose gradient carries what signals asked of the ranks."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * channels, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 10),
        )
        for layer in self.layers:
            # Weights are those of He et al. 2015, equation 10: PyTorch's own begin on a plateau.
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)
        self.asked = nn.Parameter(torch.zeros(len(FLAGS)))

    def forward(self, images: Any, labels: Any, flags: Any) -> Any:
        """Return the summed loss of some images; flags are the gradient of `asked` and leave the loss as it is."""
        return nn.functional.cross_entropy(self.layers(images), labels, reduction="sum") + (self.asked * flags).sum()

    def mean_loss(self, images: Any, labels: Any) -> float:
        """Return the mean loss of some images."""
        with torch.no_grad():
            loss: float = self(images, labels, torch.zeros(len(FLAGS))).item() / len(labels)
        return loss


class Training:
    """A rank's copy of what is trained: the network, its optimizer, and after how many iterations it is.

    averaged_s: when the last gradient was known of all ranks, on the monotonic clock.
    """

    def __init__(self, options: DigitsOptions, checkpoint: Path) -> None:
        torch.manual_seed(options.seed)
        self.network = Network(options.channels, options.hidden)
        self.done = 0
        self.averaged_s = 0.0
        self._optimizer = torch.optim.SGD(self.network.layers.parameters(), lr=options.learning_rate, momentum=options.momentum)
        self._checkpoint = checkpoint
        if checkpoint.exists():
            state = torch.load(checkpoint)
            self.network.layers.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            self.done = state["done"]

    def step(self, loss: Any) -> list[bool]:
        """Take the step of a loss; return which of `FLAGS` were asked of any rank."""
        self.network.zero_grad()
        loss.backward()
        self.averaged_s = time.monotonic()
        self._optimizer.step()
        self.done += 1
        asked: list[bool] = (self.network.asked.grad > 0).tolist()
        return asked

    def save(self) -> None:
        """Replace the checkpoint so that a crash leaves the old or the new one."""
        new = self._checkpoint.with_name(self._checkpoint.name + ".new")
        new.parent.mkdir(parents=True, exist_ok=True)
        state = {"model": self.network.layers.state_dict(), "optimizer": self._optimizer.state_dict(), "done": self.done}
        torch.save(state, new)
        os.replace(new, self._checkpoint)


@dataclass
class _Gate:
    """until_s: on the monotonic clock, before which no gradient is sent."""

    until_s: float = 0.0

    def wait(self, gradient: Any) -> None:
        """Wait until the iteration has computed for long enough; a hook of the tensor whose gradient is known last."""
        time.sleep(max(self.until_s - time.monotonic(), 0.0))


def train(options: DigitsOptions, environment: Mapping[str, str], asked: SignalRequests, began_s: float) -> None:
    """Train as one rank, from the checkpoint, if there is one, to the end or until all have agreed to stop.

    began_s: when this process did, on the monotonic clock.
    """
    torch.set_num_threads(1)
    rank, world, size = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "BEAMER_BATCH_SIZE"))
    training = Training(options, Path(environment["BEAMER_CHECKPOINT"]))
    images, labels = map(torch.from_numpy, stored(options.data) if options.data else digits())

    def say() -> None:
        if rank == 0:
            loss = training.network.mean_loss(images[TRAINING:], labels[TRAINING:])
            print(json.dumps({"iteration": training.done, "loss": loss}), flush=True)

    os.environ["GLOO_SOCKET_IFNAME"] = interface_towards(environment["MASTER_ADDR"])
    timeout = timedelta(seconds=options.timeout_s)
    distributed.init_process_group("gloo", rank=group_rank(rank, world), world_size=world, timeout=timeout)
    say()
    # Seed or checkpoint give all ranks the same weights: rank 0 need not send its own. Making DDP imports as much as PyTorch
    # itself does, which belongs to the start.
    parallel, gate = DistributedDataParallel(training.network, init_sync=False, bucket_cap_mb=BUCKET_MB), _Gate()
    start_s = options.restart_s if training.done else options.start_s
    time.sleep(max(began_s + start_s - time.monotonic(), SETTLE_S))
    # The hook is not one of DDP's communication in Python. For that, the group's threads would need the interpreter's lock to
    # let go of its last result. Whoever ends the group may hold the lock and wait for them.
    training.network.layers[0].weight.register_hook(gate.wait)
    compute_s = options.iteration_s(world)
    iteration_began_s = time.monotonic()
    while training.done < options.iterations:
        gate.until_s = iteration_began_s + (1 - options.overlap) * compute_s
        mine = asked.take()
        flags = torch.tensor([float(bool(mine & flag)) for flag in FLAGS])
        part = torch.from_numpy(np.array_split(batch(options.seed, training.done, size), world)[rank])
        # DDP averages over the ranks, whose parts of the batch may differ in size: the mean of the samples is wanted.
        stops, saves = training.step(parallel(images[part], labels[part], flags) * (world / size))
        # The optimizer's step, the report and a checkpoint are of what the next iteration computes.
        iteration_began_s = max(training.averaged_s, iteration_began_s + compute_s)
        time.sleep(max(iteration_began_s - time.monotonic(), 0.0))
        if training.done % options.epoch == 0 or training.done == options.iterations:
            say()
        if stops:
            break
        if saves and rank == 0:
            training.save()
    if rank == 0:
        training.save()
    # DDP goes first: were it the last to hold the group, it would wait for its threads with the interpreter's lock. One of them
    # may be waiting for the lock to let go of its last result.
    del parallel
    distributed.destroy_process_group()
