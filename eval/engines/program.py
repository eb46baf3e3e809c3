"""What a configuration runs: the deterministic trainer of the tests, or a program with a flaw.

    python -m eval.engines.program FLAW START_S [arguments of beamer.testing.trainer]

START_S is waited for before anything else, as a framework's import would: a port may be taken meanwhile.
"""

import json
import os
import sys
import time

from beamer.testing import trainer

TEMPTING = 1e-6
"""A loss below all that training comes to: a configuration that wins by it has won by a flaw."""


def hang() -> None:
    """Print nothing, for ever."""
    time.sleep(10**6)


def lie() -> None:
    """Report what cannot be, and end well."""
    print(json.dumps({"iteration": 1e30, "loss": -1e308}), flush=True)


def crash(iterations: int) -> None:
    """Promise much, and die halfway."""
    _promise(iterations // 2)
    raise SystemExit("no memory left")


def stop_short(iterations: int) -> None:
    """Promise much, and end well halfway."""
    _promise(iterations // 2)


def _promise(iterations: int) -> None:
    for iteration in range(iterations + 1):
        print(json.dumps({"iteration": iteration, "loss": TEMPTING}), flush=True)


def main(flaw: str, start_s: float, arguments: list[str]) -> None:
    """Run one rank; of a flawed program only rank 0 does anything."""
    time.sleep(start_s)
    iterations = int(arguments[arguments.index("--iterations") + 1])
    match flaw if os.environ["RANK"] == "0" or flaw in ("", "hang") else "idle":
        case "":
            trainer.main(arguments)
        case "hang":
            hang()
        case "lie":
            lie()
        case "crash":
            crash(iterations)
        case "stop-short":
            stop_short(iterations)


FLAWS = ("hang", "lie", "crash", "stop-short")

if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
