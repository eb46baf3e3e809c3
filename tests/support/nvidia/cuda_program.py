"""The deterministic trainer with memory on a GPU of the stand-in: it ends without room, and waits while it is locked.

Where BUSY names a directory, a file of the process there has the monotonic time of each iteration's computing, which takes
COMPUTE_S seconds.

python -m tests.support.nvidia.cuda_program BYTES [OPTIONS of beamer.testing.trainer]
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from beamer.testing import trainer
from tests.support.nvidia.cuda_standin import DIRECTORY, Standin

COMPUTE_S = 0.02
BUSY = "BEAMER_TEST_BUSY"


def main(size: int, arguments: list[str]) -> None:
    """Allocate, and train."""
    driver = Standin(Path(os.environ[DIRECTORY]))
    device = int(os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])])
    if not driver.allocate(device, size):
        sys.exit("torch.OutOfMemoryError: CUDA out of memory.")
    compute = trainer.shard

    def computed(*given: Any) -> Any:
        while driver.state(os.getpid()) != "running":
            time.sleep(0.002)
        if directory := os.environ.get(BUSY):
            time.sleep(COMPUTE_S)
            with (Path(directory) / str(os.getpid())).open("a") as file:
                print(time.monotonic(), file=file)
        return compute(*given)

    trainer.shard = computed
    trainer.main(arguments)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
