"""A training by PyTorch, as torchrun launches it, with or without Beamer's two lines.

Started with one argument, JSON: loop, one of `LOOPS`; steps; attach: whether with them; weights: a file that rank 0 saves its
last parameters in; end: how a rank ends at step `at` in the first launch of all ranks (None: none does), one of `ENDS`; rank:
which; pause_s: between steps.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main(steps: int, loop: str = "ddp", attach: bool = True, weights: str = "", **options: Any) -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    if attach:
        from beamer.integrations.torch import attach as attach_rank

        options["handle"] = attach_rank()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    rank = dist.get_rank() if dist.is_initialized() else 0
    torch.manual_seed(2 + rank)
    LOOPS[loop](model, steps, rank, options)
    if weights and rank == 0:
        torch.save(model.state_dict(), weights)
    if dist.is_initialized():
        dist.destroy_process_group()


def step_ends(step: int, here: int, options: dict[str, Any]) -> None:
    """End this rank, or wait, as the options say."""
    if options.get("started") and here == 0 and step == 1:
        Path(options["started"]).touch()
    time.sleep(options.get("pause_s", 0.0))
    is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if options.get("end") and step == options["at"] and here == options["rank"] and is_first:
        ENDS[options["end"]]()


def fail() -> None:
    raise ValueError("on purpose")


ENDS = {
    "error": fail,
    "exit": lambda: sys.exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
}


def loss_of(model: Any) -> Any:
    x = torch.randn(16, 32)
    return model(x).square().mean()


def ddp(model: Any, steps: int, rank: int, options: dict[str, Any]) -> None:
    wrapped = DistributedDataParallel(model) if dist.is_initialized() else model
    if options.get("hook"):
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        wrapped.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        for _ in range(2):  # accumulated gradients are one step
            loss_of(wrapped).backward()
        optimizer.step()
        optimizer.zero_grad()
        step_ends(step, rank, options)


def fsdp(model: Any, steps: int, rank: int, options: dict[str, Any]) -> None:
    from torch.distributed.fsdp import fully_shard

    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        step_ends(step, rank, options)


def plain(model: Any, steps: int, rank: int, options: dict[str, Any]) -> None:
    """Average gradients by `all_reduce`, with an optimizer for each layer."""
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.01) for layer in model if list(layer.parameters())]
    for step in range(1, steps + 1):
        loss_of(model).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        step_ends(step, rank, options)


def by_hand(model: Any, steps: int, rank: int, options: dict[str, Any]) -> None:
    """Move parameters without an optimizer, and say where that is."""
    for step in range(1, steps + 1):
        loss = loss_of(model)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
        options["handle"].progress(step, loss)
        step_ends(step, rank, options)


LOOPS = {"ddp": ddp, "fsdp": fsdp, "plain": plain, "by hand": by_hand}

if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
