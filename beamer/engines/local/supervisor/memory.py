"""Moves the GPU memory of a run to host memory and back, by a process of its own: the driver's calls take long and may hang.

What it answers with is what the driver says of the ranks; should it die, or not answer, the next one asks the driver first and
goes on from there. A move ends with the memory in one of two places, or the run is lost, as nobody knows where its memory is.
The driver needs the ranks thawed: they block at their next CUDA call instead, and are frozen when their memory is on the host.
"""

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Any

from beamer.engines.local.states import MemoryPlace
from beamer.engines.local.supervisor.groups import Group
from beamer.engines.local.supervisor.messages import MemoryStatus

COMMAND = (sys.executable, "-m", "beamer.nvidia.checkpoint_process")
MOVE_S = 300.0
"""How long a move may take: three times what the whole memory of a large GPU takes at 1.7 GiB/s, the lowest rate measured."""
MAX_ATTEMPTS, MAX_ATTEMPTS_BACK = 2, 3
"""Processes that may die in a move before it is given up, and further ones in bringing back what it has moved."""
FREEZE_S = 1.0
"""How long ranks have to freeze, and how much later it is tried again where they do not."""
RETRY_S = 1.0
"""Between two attempts to bring memory back onto a GPU that others use, or to move what is neither here nor there."""
END_S = 2.0
"""How long a killed process is waited for: one that waits in the driver dies later, or never."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class MoveEnd(StrEnum):
    """How a move has ended: with the memory in one place, or with nobody who knows where it is."""

    GPU = "gpu"
    HOST = "host"
    LOST = "lost"


class MemoryMoves:
    """Moves the memory of the processes of `group`. ended: called when it is where it was to be, or cannot be brought there.

    command: makes the moves. move_s: as of `MOVE_S`.
    """

    def __init__(
        self,
        group: Group,
        selector: selectors.BaseSelector,
        ended: Callable[[MoveEnd], None],
        command: tuple[str, ...] = COMMAND,
        move_s: float = MOVE_S,
    ) -> None:
        self.status = MemoryStatus()
        self._group = group
        self._selector = selector
        self._ended = ended
        self._command = command
        self._move_s = move_s
        self._process: subprocess.Popen[bytes] | None = None
        # Processes that have not died yet when they were killed.
        self._dying: list[subprocess.Popen[bytes]] = []
        # Where it is to be, where the move that is under way began, and where that leads.
        self._goal = self._from = self._toward = MemoryPlace.GPU
        self._launched_on: tuple[str, ...] = ()
        self._gpu_order: str | None = None
        # The GPUs that it is to be on, those before, and those of processes that have others than the run was launched on.
        self._devices = self._came_from = tuple[str, ...]()
        self._elsewhere: dict[int, tuple[str, ...]] = {}
        # Processes whose memory is on the host.
        self._on_host: set[int] = set()
        self._persists = False
        # Why nothing is moved any more, also in later runs; "": it is.
        self._given_up = ""
        self._attempts = 0
        self._begun_s = 0.0
        self._is_ready = self._is_moved = False
        # When the process has to have answered, ranks are frozen again, or a move is tried again.
        self._late_s: float | None = None
        self._late_reason = ""
        self._freeze_s: float | None = None
        self._retry_s: float | None = None

    def launch(self, devices: tuple[str, ...], order: str | None) -> None:
        """Take in that a run is launched on GPUs. order: what CUDA_DEVICE_ORDER is for it, None: as for this process."""
        self._launched_on = self._devices = self._came_from = devices
        self._gpu_order = order

    @property
    def is_on_gpu(self) -> bool:
        """Whether all of it is there and stays there."""
        return self.status.place is MemoryPlace.GPU

    @property
    def is_under_way(self) -> bool:
        """Whether a move is being made, not refused and to be tried again."""
        return self._late_s is not None

    @property
    def devices(self) -> tuple[str, ...]:
        """The GPUs that it is on or, where it is on the host, is to be brought back onto, in order of ranks."""
        return self._devices

    @property
    def due_s(self) -> float | None:
        """When `check` is to be called, monotonic time."""
        return min((at for at in (self._late_s, self._freeze_s, self._retry_s) if at is not None), default=None)

    def offload(self) -> None:
        """Have it moved to the host."""
        self._goal, self._persists, self._retry_s = MemoryPlace.HOST, False, None
        if self.status.place is MemoryPlace.GPU and self._given_up:
            self.status = replace(self.status, refusal=self._given_up, permanent=True)
            self._settle(MemoryPlace.GPU)
        elif self.status.place is MemoryPlace.GPU:
            self._begin()

    def give_up(self, reason: str) -> None:
        """Move nothing to the host any more, as a run was lost by that: the next one would be, too."""
        self._given_up = reason

    def bring_back(self, devices: tuple[str, ...] = (), persists: bool = False) -> None:
        """Have it moved back. devices: onto which GPUs, in order of ranks; (): `devices`. Where it is on its way, that goes on.

        persists: whether that is tried again as long as it is refused.
        """
        self._goal, self._persists = MemoryPlace.GPU, persists
        if self.status.place is MemoryPlace.HOST:
            self._came_from, self._devices = self._devices, devices or self._devices
            self._begin()

    def close(self) -> None:
        """Give up what is under way: the ranks have ended."""
        self._end_process()
        self._late_s = self._freeze_s = self._retry_s = None
        self._elsewhere.clear()
        self._on_host.clear()
        self.status = MemoryStatus()

    def check(self, now: float) -> None:
        """Do what is due: freeze ranks, try again, or end a process that does not answer."""
        if self._freeze_s is not None and now >= self._freeze_s:
            self._freeze()
        if self._retry_s is not None and now >= self._retry_s:
            self._retry_s = None
            self._begin()
        if self._late_s is not None and now >= self._late_s:
            self._end_process()
            self._try_again(self._late_reason)

    def _begin(self) -> None:
        """Begin a move to where the memory is to be."""
        self._reap()
        self._attempts = 0
        self._begun_s = time.monotonic()
        # Whether some of it may be elsewhere than on the GPU.
        self._from = self.status.place
        # A goal that changes meanwhile waits for the end: half of a move onto other GPUs is nothing to go back from.
        self._toward = self._goal
        self._is_moved = self._is_ready or self.status.place is not MemoryPlace.GPU
        self.status = replace(self.status, refusal="", permanent=False)
        self._ask()

    def _ask(self) -> None:
        """Have the process make a move; another one is started where there is none."""
        onward = self._toward is MemoryPlace.HOST
        # What is taken back has not been resumed.
        place = MemoryPlace.TO_HOST if self._from is MemoryPlace.GPU else MemoryPlace.TO_GPU
        self.status = replace(self.status, place=place)
        self._late_s, self._late_reason = time.monotonic() + self._move_s, f"the driver did not answer for {self._move_s:g} s"
        try:
            self._group.thaw(FREEZE_S)
            pids = [pid for pid in self._group.members() if pid != os.getpid()]
            self._elsewhere = {pid: devices for pid, devices in self._elsewhere.items() if pid in pids}
            known = [pid for pid in pids if pid in self._on_host]
            onto = {} if onward else {pid: changed for pid in pids if (changed := self._changed_gpus(pid))}
            line = json.dumps({"goal": "host" if onward else "gpu", "pids": pids, "known": known, "onto": onto})
            process = self._process or self._start()
            assert process.stdin
            process.stdin.write(line.encode() + b"\n")
        except OSError as error:
            # A machine that is short of something for a moment is no reason to lose a run.
            self._late_s, self._late_reason = time.monotonic() + RETRY_S, str(error)
            print(f"GPU memory cannot be moved now: {error}", file=sys.stderr, flush=True)

    def _changed_gpus(self, pid: int) -> dict[str, str]:
        """Return what takes the place of each GPU of a process, {} where none changes."""
        present = self._elsewhere.get(pid, self._launched_on)
        return {} if present == self._devices else dict(zip(present, self._devices, strict=True))

    def _start(self) -> subprocess.Popen[bytes]:
        supervisor = os.getpid()

        def enter() -> None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != supervisor:
                os._exit(1)

        # With this variable the driver would hide GPUs, which a map has to name.
        environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        if self._gpu_order is not None:
            environment["CUDA_DEVICE_ORDER"] = self._gpu_order
        self._is_ready = False
        self._process = process = subprocess.Popen(
            self._command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True,
            preexec_fn=enter,
        )  # fmt: skip
        assert process.stdout
        self._group.spared.add(process.pid)
        self._selector.register(process.stdout, selectors.EVENT_READ, self._take)
        return process

    def _end_process(self) -> None:
        process, self._process, self._is_ready = self._process, None, False
        if process is None:
            return
        assert process.stdin
        assert process.stdout
        self._selector.unregister(process.stdout)
        process.kill()
        with suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        self._dying.append(process)
        self._reap()

    def _reap(self) -> None:
        """Take in which killed processes have died since."""
        for one in [one for one in self._dying if one.poll() is not None]:
            self._dying.remove(one)
            self._group.spared.discard(one.pid)

    def _take(self) -> None:
        """Take in an answer, or that the process has died. Lines are short and written at once, and read without a buffer."""
        if self._process is None:  # An earlier event may have ended the run.
            return
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            self._end_process()
            self._try_again("the process that moves it has died")
            return
        try:
            self._take_answer(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:  # Another version may have been installed meanwhile.
            self._end_process()
            self._try_again(f"what moves it answered {line[:200]!r} ({type(error).__name__})")

    def _take_answer(self, answer: dict[str, Any]) -> None:
        if "ready" in answer:
            self._is_ready = self._is_moved = True
            return
        if "restored" in answer:
            self._elsewhere |= dict.fromkeys(answer["restored"], self._devices)
            return
        # Numbers of processes are given anew while others have ended, so that those of a former move mean nothing.
        if answer["place"] == "host":
            self._on_host = set(answer["pids"])
        elif answer["place"] == "gpu":
            self._on_host.clear()
        if self._toward is MemoryPlace.GPU and answer["place"] == "gpu":
            self._elsewhere |= dict.fromkeys(answer["pids"], self._devices)
        elif self._toward is MemoryPlace.GPU and answer["place"] == "host":
            self._devices = self._came_from
        place, refusal, permanent = answer["place"], str(answer["refusal"]), bool(answer["permanent"])
        if place is None:
            # Another process finds the driver as it is then.
            self._end_process()
            self._late_s, self._late_reason = time.monotonic() + RETRY_S, refusal
            return
        self._late_s = None
        if refusal:
            self.status = replace(self.status, refusal=refusal, permanent=permanent)
        else:
            took_s = time.monotonic() - self._begun_s
            kept = self.status.refusal if self._attempts >= MAX_ATTEMPTS else ""
            if place == "host":
                self.status = replace(self.status, refusal=kept, offload_s=took_s)
            else:
                self.status = replace(self.status, refusal=kept, restore_s=took_s)
        if place == "host":
            self._freeze()
        else:
            self._settle(MemoryPlace.GPU)

    def _try_again(self, reason: str) -> None:
        """Ask once more; what is not moved after so many attempts is brought back, and what cannot be brought back is lost."""
        self._attempts += 1
        self.status = replace(self.status, refusal=f"GPU memory was not moved: {reason}")
        if self._attempts >= MAX_ATTEMPTS:
            self._goal = self._toward = MemoryPlace.GPU
        if self._toward is MemoryPlace.GPU and not self._is_moved:
            self._late_s = None
            self._settle(MemoryPlace.GPU)
        elif self._attempts >= MAX_ATTEMPTS + MAX_ATTEMPTS_BACK:
            self._late_s = None
            self.give_up(self.status.refusal)
            self._ended(MoveEnd.LOST)
        else:
            self._ask()

    def _freeze(self) -> None:
        """Freeze ranks whose memory is on the host, or try again soon where they do not freeze."""
        # What is to go on at once need not stand still, and may be asked to because it does not freeze.
        frozen = self._goal is MemoryPlace.GPU and not self.status.refusal
        with suppress(OSError):
            frozen = frozen or self._group.freeze(FREEZE_S) or not self._group.thaw(FREEZE_S)
        self._freeze_s = None if frozen else time.monotonic() + FREEZE_S
        if frozen:
            self._settle(MemoryPlace.HOST)

    def _settle(self, place: MemoryPlace) -> None:
        """Take in where the memory is, and go on if it was to be elsewhere meanwhile."""
        self.status = replace(self.status, place=place)
        if place is self._goal:
            self._ended(MoveEnd(place.value))
        elif not self.status.refusal:
            self._begin()
        elif self._persists and self._goal is MemoryPlace.GPU:
            self._retry_s = time.monotonic() + RETRY_S
        else:
            self._goal = place
            self._ended(MoveEnd(place.value))
