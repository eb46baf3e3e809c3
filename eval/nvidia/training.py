"""A four-layer perceptron that learns samples which it has never seen, on a GPU: what the parts of the experiment run.

    python -m eval.nvidia.training --rate RATE --iterations N [--gib SIZE] [--width N] [--seed N] [--trace FILE]

What is to be learnt is which output of a random network is the greatest. It prints a line for each iteration, is saved upon
SIGTERM, and continues from BEAMER_CHECKPOINT. With the same options every run has the same losses, to the last bit.
"""

import argparse
import hashlib
import json
import os
import signal
import struct
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

BATCH, INPUTS, CLASSES = 4096, 256, 10
TEACHER_WIDTH = 128
MOMENTUM = 0.9
GIB = 1 << 30
CONTEXT_BYTES = GIB // 2
"""About what a process holds on a GPU beside what it allocates: its context."""
FILL = 0x5A
"""Every byte of the memory that is allocated for its size alone."""
PIECE = GIB
"""How much of that memory is compared at a time, as a comparison takes memory, too."""


@dataclass
class StopRequest:
    """Whether SIGTERM has come; made before the imports that take seconds."""

    came: bool = False

    def __post_init__(self) -> None:
        signal.signal(signal.SIGTERM, self._take)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # Nobody here asks for a checkpoint of what goes on.

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.came = True


def bits(loss: float) -> str:
    """Return the bits of a loss of single precision."""
    return struct.pack(">f", loss).hex()


def main() -> None:
    """Train until the last iteration, or until told to stop."""
    stop = StopRequest()
    parser = argparse.ArgumentParser(prog="python -m eval.nvidia.training", description=__doc__)
    parser.add_argument("--rate", type=float, required=True, help="the learning rate")
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--gib", type=float, default=0.0, help="GPU memory to hold in all, at least what it needs")
    parser.add_argument("--width", type=int, default=4096, help="of the hidden layers")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", type=Path, help="a file for a line with the bits of the loss of each iteration")
    parser.add_argument("--device", default="cuda", help="cpu: to try the program where there is no GPU")
    options = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # Without it cuBLAS may sum in another order.
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU: install its build for CUDA, or see nvidia-smi")
    with open(options.trace or os.devnull, "a") as trace:
        _train(torch, options, stop, trace)


def _train(torch: Any, options: argparse.Namespace, stop: StopRequest, trace: TextIO) -> None:
    nn, device = torch.nn, options.device
    torch.manual_seed(options.seed)
    teacher = nn.Sequential(nn.Linear(INPUTS, TEACHER_WIDTH), nn.Tanh(), nn.Linear(TEACHER_WIDTH, CLASSES)).to(device)
    sizes = (INPUTS, options.width, options.width, options.width)
    hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(options.width, CLASSES)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=MOMENTUM)
    path = Path(os.environ["BEAMER_CHECKPOINT"]) if os.environ.get("BEAMER_CHECKPOINT") else None
    done = 0
    if path and path.exists():
        saved = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]
    samples = torch.Generator(device=device)
    held = None
    while done < options.iterations and not stop.came:
        samples.manual_seed((options.seed << 32) + done)
        points = torch.randn(options.batch, INPUTS, device=device, generator=samples)
        with torch.no_grad():
            wanted = teacher(points).argmax(dim=1)
        loss = nn.functional.cross_entropy(model(points), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if held is None:
            held = _filled(torch, device, options.gib)
        done += 1
        shown = loss.item()
        last = done == options.iterations
        digest = f"{bits(shown)}-{_digest(torch, model)}" if last else bits(shown)
        trace.write(json.dumps({"iteration": done, "digest": digest, "at_s": time.time()}) + "\n")
        trace.flush()
        print(json.dumps({"iteration": done, "loss": shown}), flush=True)
    if held is not None and not all(bool((piece == FILL).all()) for piece in held.split(PIECE)):
        sys.exit("GPU memory has another content than was written")
    if path:
        new = path.with_suffix(".new")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": done}, new)
        new.replace(path)


def _filled(torch: Any, device: str, gib: float) -> Any:
    """Return memory that brings what the process holds up to a size."""
    taken = torch.cuda.memory_reserved() + CONTEXT_BYTES if device == "cuda" else 0
    return torch.full((max(int(gib * GIB) - taken, 0),), FILL, dtype=torch.uint8, device=device)


def _digest(torch: Any, model: Any) -> str:
    """Return what tells the parameters from others."""
    parameters = torch.cat([one.detach().flatten() for one in model.parameters()])
    return hashlib.sha256(parameters.cpu().numpy().tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    main()
