"""The process that moves the GPU memory of a run for its supervisor, as the driver's calls take long and may hang.

    python -m beamer.nvidia.checkpoint_process

It says when it is ready, answers every line of JSON, each a move, with one, and ends with its input:

    -                                                 {"ready": true}
    {"goal": "host", "pids": [17, 18],                {"place": "host", "pids": [17], "refusal": "", "permanent": false}
        "known": [], "onto": {}}

known: those whose memory has been moved. onto: of the goal "gpu", by process, what takes the place of each of its GPUs:
{"17": {"0": "1"}}. Where such a move is taken back, a line comes before the answer, with the processes that were on their new
GPUs: {"restored": [17]}.
"""

import json
import os
import sys
from collections.abc import Callable

from beamer.nvidia.checkpoint import CudaCheckpoints, NoCheckpointsError
from beamer.nvidia.moves import Destination, Moved, Mover

LOCK_S = 10.0
"""How long a process may take to end the kernels that it has begun."""
SETTLE_S = 120.0
"""How long a call of a process before this one may go on: the whole memory of a GPU, at the lowest rate measured."""


def answer(line: str, mover: Mover | NoCheckpointsError, restored: Callable[[tuple[int, ...]], None]) -> Moved:
    """Return what came of the move that a line asks for. mover: who makes it, or why nobody can. restored: of `Mover.move`."""
    request = json.loads(line)
    if isinstance(mover, NoCheckpointsError):
        # Nothing can have been moved to the host without it.
        return Moved(Destination.GPU if request["goal"] == Destination.HOST else None, (), str(mover), permanent=True)
    onto = {int(pid): dict(gpus) for pid, gpus in request["onto"].items()}
    return mover.move([int(pid) for pid in request["pids"]], Destination(request["goal"]), onto, restored, request["known"])


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

    def say(values: dict[str, object]) -> None:
        answers.write(json.dumps(values) + "\n")

    say({"ready": True})
    for line in sys.stdin:
        say(vars(answer(line, mover, lambda pids: say({"restored": pids}))))


if __name__ == "__main__":
    main()
