"""What a rank of `topologies.emulation.digits` does: the network, its optimizer and checkpoint, and the loop around DDP."""

import json
import os
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from beamer.testing.trainer import CHECKPOINT, STOP, SignalRequests
from topologies.emulation.digits_data import TRAINING, DigitsOptions, batch, digits, stored
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


class LayersTraining:
    """Layers that DDP trains, their optimizer and after how many iterations they are: as of the checkpoint, if there is one."""

    def __init__(self, layers: Any, learning_rate: float, momentum: float, checkpoint: Path) -> None:
        self.layers = layers
        self.done = 0
        self._optimizer = torch.optim.SGD(layers.parameters(), lr=learning_rate, momentum=momentum)
        self._checkpoint = checkpoint
        if checkpoint.exists():
            state = torch.load(checkpoint)
            layers.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            self.done = state["done"]

    def step(self, loss: Any, network: Any) -> float:
        """Take the step of a network's loss; return when its gradient was known of all ranks, on the monotonic clock."""
        network.zero_grad()
        loss.backward()
        averaged_s = time.monotonic()
        self._optimizer.step()
        self.done += 1
        return averaged_s

    def save(self) -> None:
        """Replace the checkpoint so that a crash leaves the old or the new one."""
        new = self._checkpoint.with_name(self._checkpoint.name + ".new")
        new.parent.mkdir(parents=True, exist_ok=True)
        state = {"model": self.layers.state_dict(), "optimizer": self._optimizer.state_dict(), "done": self.done}
        torch.save(state, new)
        os.replace(new, self._checkpoint)


def process_start_s() -> float:
    """Return when this process was started, on the monotonic clock: before PyTorch was imported."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # `starttime` of proc(5)
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age_s


def train(options: DigitsOptions, environment: Mapping[str, str], asked: SignalRequests) -> None:
    """Train as one rank, from the checkpoint, if there is one, to the end or until all have agreed to stop."""
    torch.set_num_threads(1)
    rank, world, size = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "BEAMER_BATCH_SIZE"))
    torch.manual_seed(options.seed)
    network, checkpoint = Network(options.channels, options.hidden), Path(environment["BEAMER_CHECKPOINT"])
    training = LayersTraining(network.layers, options.learning_rate, options.momentum, checkpoint)
    images, labels = map(torch.from_numpy, stored(options.data) if options.data else digits())

    def say() -> None:
        if rank == 0:
            loss = network.mean_loss(images[TRAINING:], labels[TRAINING:])
            print(json.dumps({"iteration": training.done, "loss": loss}), flush=True)

    def wait_to_send(gradient: Any) -> None:  # The tensor whose gradient is known last has this hook.
        time.sleep(max(send_s - time.monotonic(), 0.0))

    os.environ["GLOO_SOCKET_IFNAME"] = interface_towards(environment["MASTER_ADDR"])
    timeout = timedelta(seconds=options.timeout_s)
    distributed.init_process_group("gloo", rank=group_rank(rank, world), world_size=world, timeout=timeout)
    say()
    # Seed or checkpoint give all ranks the same weights: rank 0 need not send its own. Making DDP imports as much as PyTorch
    # itself does, which belongs to the start.
    parallel = DistributedDataParallel(network, init_sync=False, bucket_cap_mb=BUCKET_MB)
    start_s = options.restart_s if training.done else options.start_s
    time.sleep(max(process_start_s() + start_s - time.monotonic(), SETTLE_S))
    # The hook is not one of DDP's communication in Python. For that, the group's threads would need the interpreter's lock to
    # let go of its last result. Whoever ends the group may hold the lock and wait for them.
    network.layers[0].weight.register_hook(wait_to_send)
    compute_s = options.iteration_s(world)
    iteration_began_s = time.monotonic()
    while training.done < options.iterations:
        send_s = iteration_began_s + (1 - options.overlap) * compute_s
        mine = asked.take()
        flags = torch.tensor([float(bool(mine & flag)) for flag in FLAGS])
        part = torch.from_numpy(np.array_split(batch(options.seed, training.done, size), world)[rank])
        # DDP averages over the ranks, whose parts of the batch may differ in size: the mean of the samples is wanted.
        averaged_s = training.step(parallel(images[part], labels[part], flags) * (world / size), network)
        # The optimizer's step, the report and a checkpoint are of what the next iteration computes.
        iteration_began_s = max(averaged_s, iteration_began_s + compute_s)
        time.sleep(max(iteration_began_s - time.monotonic(), 0.0))
        if training.done % options.epoch == 0 or training.done == options.iterations:
            say()
        stops, saves = (network.asked.grad > 0).tolist()
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
