"""A program that takes seconds to start, then learns on samples that it has never seen, so that its losses are noisy.

python -m eval.gpu.fresh_trainer --lr RATE --iterations N [--start-s S] [--pause-s S] [--every N] [--seed N]

It fits a linear map by gradient descent, a new batch at each iteration (`eval.gpu.fresh_samples`). The start is a sleep that
stands for imports, and the pause of each iteration stands for the GPU's time.
"""

import argparse
import json
import signal
import sys
import time
from itertools import islice

from eval.gpu.fresh_samples import regression


def main() -> None:
    """Run until the last iteration, or until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--start-s", type=float, default=0.0)
    parser.add_argument("--pause-s", type=float, default=0.01)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    time.sleep(options.start_s)
    print("ready", flush=True)
    for iteration, loss in enumerate(islice(regression(options.lr, options.seed), options.iterations), 1):
        if iteration % options.every == 0 or iteration == options.iterations:
            print(json.dumps({"iteration": iteration, "loss": loss}), flush=True)
        time.sleep(options.pause_s)


if __name__ == "__main__":
    main()
