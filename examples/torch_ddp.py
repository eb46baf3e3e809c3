"""A data-parallel training by PyTorch that tells Beamer of itself: an import and the call of `attach` are all of it.

torchrun --nproc-per-node 2 examples/torch_ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from beamer.integrations.torch import attach


def main() -> None:
    """Train a small network on drawn numbers."""
    dist.init_process_group("gloo")
    attach()
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(200):
        x = torch.randn(64, 16)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
