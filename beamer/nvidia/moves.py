"""Moving the GPU memory of a run's processes to host memory and back: all of them, or none.

Every step follows from what the driver says of the processes, so that a move can be taken up wherever another caller has left
it. All processes are in one phase together, as ranks wait for each other: none is checkpointed before all are locked, none
unlocked before all are restored. A move that is refused is taken back.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from beamer.nvidia.checkpoint import Checkpoints, DriverError, ProcessState
from beamer.process_stat import process_stat

GPU_DEVICE = re.compile(r"/dev/nvidia\d+")
SETTLE_S = 0.02
"""Between two looks at a process that is on its way by a call of somebody else's."""


class Destination(StrEnum):
    """Where the memory of the processes is to be."""

    HOST = "host"
    GPU = "gpu"

    @property
    def other(self) -> "Destination":
        """The other one."""
        return Destination.GPU if self is Destination.HOST else Destination.HOST


class DriverCall(StrEnum):
    """A call of the driver that changes a process' state."""

    LOCK = "lock"
    CHECKPOINT = "checkpoint"
    RESTORE = "restore"
    UNLOCK = "unlock"


PHASES: Mapping[Destination, tuple[tuple[ProcessState, DriverCall], ...]] = {
    Destination.HOST: ((ProcessState.RUNNING, DriverCall.LOCK), (ProcessState.LOCKED, DriverCall.CHECKPOINT)),
    Destination.GPU: ((ProcessState.CHECKPOINTED, DriverCall.RESTORE), (ProcessState.LOCKED, DriverCall.UNLOCK)),
}
"""By goal: the calls that are due for processes in a state, in order of phases."""


@dataclass(frozen=True)
class Moved:
    """What a move came to. place: where the memory of all processes is, None: neither here nor there.

    pids: those that use CUDA. refusal: why it is not where it was to be, "": it is. permanent: whether that will not change.
    """

    place: Destination | None
    pids: tuple[int, ...] = ()
    refusal: str = ""
    permanent: bool = False


def next_calls(states: Mapping[int, ProcessState], goal: Destination) -> tuple[DriverCall | None, tuple[int, ...]]:
    """Return the call that is due now and the processes that it is due for; none: all are where they are to be."""
    for state, call in PHASES[goal]:
        if due := tuple(pid for pid, one in states.items() if one is state):
            return call, due
    return None, ()


def lives(pid: int) -> bool:
    """Return whether there is a process, and it has not ended."""
    process = process_stat(f"/proc/{pid}/stat")
    return process is not None and process.state not in "ZX"


def parent_of(pid: int) -> int:
    """Return the process that a process is a child of, 0: there is none, or it has ended."""
    process = process_stat(f"/proc/{pid}/stat")
    return process.parent if process else 0


def has_gpu(pid: int) -> bool:
    """Return whether a process has a GPU of NVIDIA's open, as far as that may be read."""
    found = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(found):
            with suppress(OSError):  # It may be closed meanwhile.
                if GPU_DEVICE.fullmatch(os.readlink(f"{found}/{name}")):
                    return True
    return False


class Mover:
    """Moves memory by the calls of `driver`. lock_s: how long a lock may take. settle_s: how long somebody else's call may.

    clock, sleep: of the machine. lives, has_gpu: whether a process does. parent_of: as the function.
    """

    def __init__(
        self,
        driver: Checkpoints,
        lock_s: float,
        settle_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        lives: Callable[[int], bool] = lives,
        has_gpu: Callable[[int], bool] = has_gpu,
        parent_of: Callable[[int], int] = parent_of,
    ) -> None:
        self._driver = driver
        self._lock_s = lock_s
        self._settle_s = settle_s
        self._clock = clock
        self._sleep = sleep
        self._lives = lives
        self._has_gpu = has_gpu
        self._parent_of = parent_of
        self._known: set[int] = set()

    def move(
        self,
        pids: Sequence[int],
        goal: Destination,
        onto: Mapping[int, Mapping[str, str]],
        restored: Callable[[tuple[int, ...]], None] = lambda pids: None,
        known: Collection[int] = (),
    ) -> Moved:
        """Move the memory of processes, of which those that do not use CUDA have none.

        onto: by process, as of `Checkpoints.restore`. restored: called with those that are on other GPUs now, before their
        memory leaves these again as that of others cannot follow: the driver does not say which GPUs it came from last.
        known: those that have been locked before.
        """
        self._known = set(known)
        try:
            return Moved(goal, self._reach(pids, goal, onto))
        except DriverError as error:
            refusal, permanent = str(error), error.is_permanent
            if error.is_of_no_return:
                return Moved(None, (), refusal, permanent)
        try:
            if goal is Destination.GPU and onto:
                restored(tuple(pid for pid in onto if self._driver.state(pid) in (ProcessState.LOCKED, ProcessState.RUNNING)))
            return Moved(goal.other, self._reach(pids, goal.other, {}), refusal, permanent)
        except DriverError as error:
            return Moved(None, (), f"{refusal}; and then {error}", permanent)

    def _reach(self, pids: Sequence[int], goal: Destination, onto: Mapping[int, Mapping[str, str]]) -> tuple[int, ...]:
        """Make calls until all processes are there, and return those that use CUDA. Raises `DriverError`."""
        until = self._clock() + self._settle_s
        while True:
            states = self._states(pids, goal)
            if failed := [pid for pid, state in states.items() if state is ProcessState.FAILED]:
                raise DriverError("state", failed[0], "CU_PROCESS_STATE_FAILED")
            if settling := [pid for pid, state in states.items() if state.is_settling]:
                if self._clock() > until:
                    raise DriverError("state", settling[0], f"{states[settling[0]]} for {self._settle_s:g} s")
                self._sleep(SETTLE_S)
                continue
            call, due = next_calls(states, goal)
            if call is None:
                return tuple(states)
            self._make(call, due, onto)

    def _states(self, pids: Sequence[int], goal: Destination) -> dict[int, ProcessState]:
        """Return the states of the processes that use CUDA. Raises `DriverError` where the driver denies one that does.

        It says the same, CUDA_ERROR_INVALID_VALUE, of a process without CUDA and of one that it cannot deal with. What it has
        locked is therefore not let go, and memory is not said to leave a GPU that a process has open whom the driver does not
        know. Those below a process that it knows have inherited what is open there.
        """
        states = {pid: state for pid in pids if (state := self._driver.state(pid)) is not None}
        self._known |= {pid for pid, state in states.items() if state is not ProcessState.RUNNING}
        denied = [pid for pid in pids if pid in self._known and pid not in states and self._lives(pid)]
        if goal is Destination.HOST:
            denied += [pid for pid in pids if pid not in states and not self._is_below(pid, states) and self._has_gpu(pid)]
        if denied:
            raise DriverError("state", denied[0], "it knows of no CUDA in a process that has a GPU")
        return states

    def _is_below(self, pid: int, known: Collection[int]) -> bool:
        """Return whether a process descends from one of some others."""
        above = set[int]()
        while (pid := self._parent_of(pid)) and pid not in above:
            if pid in known:
                return True
            above.add(pid)
        return False

    def _make(self, call: DriverCall, pids: Sequence[int], onto: Mapping[int, Mapping[str, str]]) -> None:
        """Make a call for processes at once: one may wait for what another does. Raises the first `DriverError`."""
        made = {
            DriverCall.LOCK: lambda pid: self._driver.lock(pid, self._lock_s),
            DriverCall.CHECKPOINT: self._driver.checkpoint,
            DriverCall.RESTORE: lambda pid: self._driver.restore(pid, onto.get(pid, {})),
            DriverCall.UNLOCK: self._driver.unlock,
        }[call]
        with ThreadPoolExecutor(len(pids)) as pool:
            for made_call in [pool.submit(made, pid) for pid in pids]:
                made_call.result()
