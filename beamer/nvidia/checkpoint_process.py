"""The process that moves the GPU memory of a run for its supervisor, as the driver's calls take long and may hang.

    python -m beamer.nvidia.checkpoint_process

It says when it is ready, answers every line of JSON, each a move, with one, and ends with its input:

    -                                                 {"ready": true}
    {"goal": "host", "pids": [17, 18], "onto": {}}    {"place": "host", "pids": [17], "refusal": "", "permanent": false}
"""

import json
import os
import sys

from beamer.nvidia.checkpoint import CudaCheckpoints, NoCheckpointsError
from beamer.nvidia.moves import Destination, Moved, Mover

LOCK_S = 10.0
"""How long a process may take to end the kernels that it has begun."""
SETTLE_S = 120.0
"""How long a call of a process before this one may go on: the whole memory of a GPU, at the lowest rate measured."""


def answer(line: str, mover: Mover | NoCheckpointsError) -> Moved:
    """Return what came of the move that a line asks for. mover: who makes it, or why nobody can."""
    request = json.loads(line)
    if isinstance(mover, NoCheckpointsError):
        # Nothing can have been moved to the host without it.
        return Moved(Destination.GPU if request["goal"] == Destination.HOST else None, (), str(mover), permanent=True)
    return mover.move([int(pid) for pid in request["pids"]], Destination(request["goal"]), dict(request["onto"]))


def main() -> None:
    """Answer every line of the standard input."""
    # Packages write to the standard output.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    mover: Mover | NoCheckpointsError
    try:
        mover = Mover(CudaCheckpoints(), LOCK_S, SETTLE_S)
    except NoCheckpointsError as error:
        mover = error
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        answers.write(json.dumps(vars(answer(line, mover))) + "\n")


if __name__ == "__main__":
    main()
