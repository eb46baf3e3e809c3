"""Descend a parabola: a training program that Beamer can stop, and start again from a checkpoint. It needs no package.

    python examples/descent.py --rate 0.1 --iterations 5

`beamer schedule` runs it as the file beside it says: examples/search.yaml.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path
from types import FrameType

PAUSE_S = 0.01  # stands for what an iteration computes

stopping = False


def stop(number: int, frame: FrameType | None) -> None:
    """Note that this process is to leave."""
    global stopping
    stopping = True


def descend(rate: float, iterations: int, checkpoint: Path | None) -> None:
    """Go on from the checkpoint, if there is one, to the last iteration or until stopped; then write it."""
    x, done = json.loads(checkpoint.read_text()) if checkpoint and checkpoint.exists() else (1.0, 0)
    while done < iterations and not stopping:
        x -= rate * 2 * x  # the derivative of x * x
        done += 1
        print(json.dumps({"iteration": done, "loss": x * x}), flush=True)
        time.sleep(PAUSE_S)
    if checkpoint:
        new = checkpoint.with_suffix(".new")
        new.write_text(json.dumps([x, done]))
        new.replace(checkpoint)  # at once: a crash leaves the old one or the new one


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    asked = parser.parse_args()
    path = os.environ.get("BEAMER_CHECKPOINT")
    descend(asked.rate, asked.iterations, Path(path) if path else None)
