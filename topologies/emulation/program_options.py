"""The options that every program of an emulated search has, whether it trains or stands in for one that does."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TypeVar, cast

Options = TypeVar("Options", bound="ProgramOptions")


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """What to do."""

    iterations: int
    """Iterations after which it ends."""
    compute_s: float
    """Seconds of an iteration on one GPU, divided among the ranks; a program that trains takes at least so long."""
    fixed_s: float = 0.0
    """Seconds of every iteration, in addition."""
    overlap: float = 0.0
    """The share of the computing during which the coflow already runs."""
    epoch: int = 1
    """Iterations between two lines of progress."""
    start_s: float = 0.0
    """Seconds until the first iteration, when it is first started; each program says from when on."""
    restart_s: float = 0.0
    """Seconds as `start_s`, when it is started again."""

    def iteration_s(self, ranks: int) -> float:
        """Return what an iteration computes for, seconds."""
        return self.compute_s / ranks + self.fixed_s


def parsed(kind: type[Options], module: str, doc: str | None, arguments: Sequence[str] | None) -> Options:
    """Return the options of a module's command line, one for each field; those without a default must be given."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=doc)
    for one in fields(kind):
        name, of = one.name.replace("_", "-"), cast(Callable[[str], object], one.type)
        parser.add_argument(f"--{name}", type=of, required=one.default is MISSING, default=one.default)
    return kind(**vars(parser.parse_args(arguments)))
