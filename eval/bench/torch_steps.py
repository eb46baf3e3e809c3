"""What `beamer.integrations.torch.attach` adds to steps of DDP: run by torchrun, blocks with and without it in turns.

torchrun --nproc-per-node 2 -m eval.bench.torch_steps --controller URL

Prints as JSON the ratio of step times with its limits: of each pair of blocks that follow one another, the medians' ratio; of
these, the geometric mean and its interval of 95 %. And the 99th percentile of what the training thread spends in the hook.
"""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from beamer.integrations import torch as integration
from eval.statistics import Ratio

WIDTH = 512
LEVEL_99 = 0.99


class _TimedSteps(integration.OptimizerSteps):
    """Counts as usual, and keeps how long that took."""

    taken_s: list[float] = []  # noqa: RUF012  # of all blocks

    def __call__(self, optimizer: object, args: object, kwargs: object) -> None:
        since = time.perf_counter()
        super().__call__(optimizer, args, kwargs)
        self.taken_s.append(time.perf_counter() - since)


def main() -> None:
    """Run the blocks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--controller", default="http://127.0.0.1:1")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    integration.OptimizerSteps = _TimedSteps  # type: ignore[misc]
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, WIDTH)

    def block() -> float:
        times = []
        for _ in range(options.steps):
            since = time.perf_counter()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            times.append(time.perf_counter() - since)
        return statistics.median(times)

    def attached() -> float:
        with integration.attach(url=options.controller):
            return block()

    block()
    blocks_with, blocks_without = [], []
    for pair in range(options.pairs):
        if pair % 2:  # Neither comes first always.
            with_s, without_s = attached(), block()
        else:
            without_s, with_s = block(), attached()
        blocks_with.append(with_s)
        blocks_without.append(without_s)
    if dist.get_rank() == 0:
        taken_s = sorted(_TimedSteps.taken_s)
        ratio = Ratio.of(blocks_with, blocks_without)
        figures = {
            "ratio": ratio.mean,
            "ratio_low": ratio.low,
            "ratio_high": ratio.high,
            "without_s": statistics.median(blocks_without),
            "hook_p99_s": taken_s[int(LEVEL_99 * len(taken_s))],
            "hook_max_s": taken_s[-1],
            "steps": len(taken_s),
        }
        print(json.dumps(figures), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
