"""Tells Beamer of a training by PyTorch: two lines, and nothing else in the program changes.

    from beamer.integrations.torch import attach

    dist.init_process_group("gloo")
    attach()

Each rank calls `attach` once, after `init_process_group`; a training without one is a single rank. The program may be launched
by torchrun, by `beamer run`, by `beamer schedule` or by hand.

A step is a step of the optimizers, which PyTorch lets a hook see after each: an increment in the training thread. No hook of
DDP's communication is used. DDP has place for one, which is left to the program, and steps of FSDP2 and of loops that call
`all_reduce` themselves have none. What such a hook would tell beyond steps is their bytes: agents measure those instead, as an
attempt that has started cannot be described anew.

Nothing here raises into the program.
"""

import itertools
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import PurePath
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from beamer.integrations.process_end import ProcessOutcome, outcome_of
from beamer.integrations.training import (
    RESTARTS,
    LoneRank,
    RankExchange,
    TrainingProcess,
    TrainingRank,
    choose_names,
    plain_name,
)

HOST_VARIABLE = "BEAMER_HOST"
MANY_COLLECTIVES = 1000
"""So many without a step of an optimizer are a loop that makes its steps otherwise: a model's parameters are fewer buckets."""
_calls = itertools.count()

_log = logging.getLogger("beamer.integrations")


class Training(AbstractContextManager["Training"]):
    """What `attach` returns: for programs that report their loss, or steps that no optimizer of PyTorch makes.

    It lasts as long as the process, or until the end of its block: for programs that train several models one after another.
    """

    def __init__(self, process: TrainingProcess | None, hook: RemovableHandle | None = None) -> None:
        self._process, self._hook = process, hook

    @property
    def takes_part(self) -> bool:
        """Whether Beamer is told of this training."""
        return self._process is not None

    def progress(self, step: int | None = None, loss: Any = None) -> None:
        """Report how many steps of the trial are complete; ranks other than 0 report nothing.

        step: since the trial's beginning, in place of what is counted; None: as counted. loss: at that step.
        """
        if self._process is not None:
            self._process.progress(step, loss)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        global _present
        if self._process is not None:
            self._process.end(ProcessOutcome.FINISHED if error is None else outcome_of(error))
        if self._hook is not None:
            self._hook.remove()
        _present = None

    def __repr__(self) -> str:
        return f"<Training {self._process!r}>"


_present: Training | None = None
"""What this process takes part in: one trial at a time."""


class OptimizerSteps:
    """Counts a training's steps by those of its optimizers: one step is complete when an optimizer steps again.

    Several optimizers, one for each of two networks or one for each parameter, hence make one step together.
    """

    def __init__(self) -> None:
        self.count = 0
        self._stepped: set[int] = set()

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Take note of a step. Called by PyTorch after each."""
        key = id(optimizer)
        if not self._stepped:
            self._stepped.add(key)
            self.count += 1
        elif key in self._stepped:
            self._stepped.clear()
            self._stepped.add(key)
            self.count += 1
        else:
            self._stepped.add(key)


class SeenSteps:
    """Returns how many steps were made; says once where collectives go on and no optimizer of PyTorch steps.

    collectives: returns how many the default process group has begun. They tell that a loop goes on, not how many make a step.
    """

    def __init__(self, steps: OptimizerSteps, collectives: Callable[[], int]) -> None:
        self._steps, self._collectives = steps, collectives
        self._has_said = False

    def __call__(self) -> int:
        """Return how many steps were made."""
        if not self._steps.count and not self._has_said and self._collectives() > MANY_COLLECTIVES:
            self._has_said = True
            _log.warning(
                "Beamer: %d collectives, and no step of an optimizer of torch.optim: how far this training is remains unknown. "
                "Keep what attach() returns, and call its progress(step) in the loop",
                MANY_COLLECTIVES,
            )
        return self._steps.count


class StoreExchange:
    """What ranks tell each other through the store of the default process group; each operation is short.

    launch: which start of all ranks this is, as torchrun may keep the store. call: counts the calls of `attach` in a process.
    """

    def __init__(self, store: Any, launch: str, call: int) -> None:
        self._store = dist.PrefixStore(f"beamer/{launch}/{call}", store)

    def give(self, key: str, value: str) -> None:
        """Set a key."""
        self._store.set(key, value)

    def take(self, key: str) -> str | None:
        """Return a key's value if it is set."""
        return self._store.get(key).decode() if self._store.check([key]) else None


def attach(
    study: str | None = None,
    trial: str | None = None,
    run: str | None = None,
    host: str | None = None,
    url: str | None = None,
    step: int = 0,
) -> Training:
    """Tell Beamer of this training from now on: where its ranks run, how far it is, and how it ends.

    study, trial, run: their names; None: `BEAMER_STUDY`, `BEAMER_TRIAL` and `BEAMER_RUN`, or else the script's name, the run id
    of torchrun, and the present run of the study. host: this rank's, as the controller's network names it; None: `BEAMER_HOST`,
    or this machine's name. url: of the controller, as of `Client`. step: of the trial at which the training begins, where it
    goes on from a checkpoint. While a training goes on, another call returns the same.
    """
    global _present
    if _present is not None:
        return _present
    try:
        training = _attach(study, trial, run, host, url, step)
    except Exception as error:  # noqa: BLE001  Training goes on without Beamer.
        _log.warning("Beamer is not told of this training by PyTorch %s: %r", torch.__version__, error)
        return Training(None)
    if training.takes_part:
        _present = training
    return training


def _attach(study: str | None, trial: str | None, run: str | None, host: str | None, url: str | None, step: int) -> Training:
    where = host or os.environ.get(HOST_VARIABLE) or socket.gethostname()
    exchange: RankExchange = LoneRank()
    collectives: Callable[[], int] = int
    rank = TrainingRank(0, 1, where)
    if dist.is_available() and dist.is_initialized():
        rank = TrainingRank(dist.get_rank(), dist.get_world_size(), where)
        collectives = dist.distributed_c10d._get_default_group()._get_sequence_number_for_group
        if rank.size > 1:
            exchange = StoreExchange(dist.distributed_c10d._get_default_store(), os.environ.get(RESTARTS, "0"), next(_calls))
    elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _log.warning("Beamer: attach() came before init_process_group(): call it after that; training continues without Beamer")
        return Training(None)
    names = choose_names(os.environ, _script(), where, os.getpid(), study, trial, run)
    steps = OptimizerSteps()
    process = TrainingProcess(names, rank, exchange, url, step, SeenSteps(steps, collectives))
    return Training(process, register_optimizer_step_post_hook(steps))


def _script() -> str:
    name = PurePath(sys.argv[0]).stem if sys.argv and sys.argv[0] else ""
    return plain_name(name or "training")


def _forget_in_child() -> None:
    """Leave what a forked child inherits to the parent."""
    global _present
    _present = None


os.register_at_fork(after_in_child=_forget_in_child)
