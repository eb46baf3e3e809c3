"""Studies, stages, trials and attached workers, as trainers and tuners hold them."""

import math
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any

from beamer.client import lease
from beamer.client.outbox import Outbox
from beamer.client.request import Address, PutRequest, name_of
from beamer.studies.model import Rung, StageStatus, TrialStatus, Worker

_NO_AGENT = (
    "no Beamer agent takes this worker at %s: the controller is told its process id instead. If the process is killed, that "
    "is noticed only by an agent that sees its host's processes, or when nothing was heard of the trial for long"
)


class StudyHandle(AbstractContextManager["StudyHandle"]):
    """A run of a study; leaving its block ends it, leaving it by an exception does not: it may be gone on with."""

    def __init__(self, outbox: Outbox, address: Address, ended: Callable[[], None] = lambda: None) -> None:
        self._outbox = outbox
        self._address = address
        self._ended = ended

    @property
    def name(self) -> str:
        """The study's name."""
        return self._address.study

    @property
    def run(self) -> str:
        """What tells this run of the study from others; for processes that take part in it."""
        return str(self._address.run)

    def declare(
        self, weight: float | None = None, rungs: Sequence[Rung] | None = None, barriers: bool | None = None
    ) -> None:  # fmt: skip
        """Change what is declared of the study; what is None stays as it is."""
        given = {"weight": weight, "rungs": _listed(rungs), "barriers": barriers}
        self._put({"run": self.run} | {name: value for name, value in given.items() if value is not None})

    def trial(self, name: str, budget: int | None = None) -> "TrialHandle":
        """Register a trial. budget: the step at which it is complete, None where that is not known."""
        address = replace(self._address, trial=name_of(name))
        self._outbox.put(PutRequest(address, body={} if budget is None else {"budget": budget}))
        return TrialHandle(self._outbox, address)

    def stage(self, name: str) -> "StageHandle":
        """Register a stage: from now on its completion time counts."""
        address = replace(self._address, stage=name_of(name))
        self._outbox.put(PutRequest(address, body={}))
        return StageHandle(self._outbox, address)

    def end(self) -> None:
        """Report the search over: trials that have not ended are killed, and its stages are not waited for any more."""
        self._put(None, "end")
        self._ended()

    def _put(self, body: dict[str, Any] | None, *parts: str) -> None:
        self._outbox.put(PutRequest(self._address, parts, body))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.end()


class StageHandle(AbstractContextManager["StageHandle"]):
    """A registered stage; leaving its block seals it."""

    def __init__(self, outbox: Outbox, address: Address) -> None:
        self._outbox = outbox
        self._address = address

    def add(self, trial: "TrialHandle | str", step: int) -> None:
        """Let the stage wait until a trial, which joins it, has completed `step` steps since the trial's beginning."""
        name = name_of(trial.name if isinstance(trial, TrialHandle) else trial)
        body = {"step": step, "stage": self._address.stage}
        self._outbox.put(PutRequest(replace(self._address, stage=None, trial=name), ("target",), body))

    def remove(self, trial: "TrialHandle | str") -> None:
        """Let the stage no longer wait for a trial, which has not ended: its search goes on without it for now."""
        name = name_of(trial.name if isinstance(trial, TrialHandle) else trial)
        body = {"stage": self._address.stage}
        self._outbox.put(PutRequest(replace(self._address, stage=None, trial=name), ("target", "drop"), body))

    def seal(self) -> None:
        """Seal the stage: no further trial joins, it ends with the last that has not reached its step or ended."""
        self._outbox.put(PutRequest(self._address, ("seal",)))

    def wait(self, timeout_s: float) -> bool:
        """Wait until the stage is done, at most `timeout_s` seconds; return whether it is. For tuners: this one does block."""
        return self._outbox.poll(self._address, lambda answer: bool(answer["status"] == StageStatus.DONE), timeout_s)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seal()


class TrialHandle(AbstractContextManager["TrialHandle"]):
    """A trial; leaving its block reports it finished, leaving it by an exception failed or, where it is interrupted, killed."""

    def __init__(self, outbox: Outbox, address: Address) -> None:
        self._outbox = outbox
        self._address = address
        self._attempt: str | None = None
        self._leases: dict[str, lease.AgentLease] = {}  # leases by rank
        self._starts: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The trial's name in its study."""
        return str(self._address.trial)

    def milestone(self, step: int) -> None:
        """Report which step somebody waits for, where no stage does, as the next rung of an asynchronous search."""
        self._put({"step": step}, "target")

    def start(
        self,
        workers: Sequence[Worker | str],
        sync_bytes: int | None = None,
        collective: str = "ring",
        compute_s: float | None = None,
        overlap: float = 0.0,
        attempt: str | None = None,
    ) -> str:
        """Report that the trial runs on these workers from now on, instead of where it ran before; return the attempt's name.

        workers: a bare host is the worker whose rank is its position. sync_bytes, collective, compute_s, overlap: as in
        `Profile`. attempt: a name that no other attempt of the trial has; None: a new one.
        """
        self._attempt = uuid.uuid4().hex if attempt is None else str(attempt)
        body: dict[str, Any] = {
            "workers": _workers(workers),
            "sync_bytes": sync_bytes,
            "collective": collective,
            "compute_s": compute_s,
            "overlap": overlap,
        }
        self._put(body, "attempts", self._attempt)
        return self._attempt

    def pause(self) -> None:
        """Report that the trial does not run until it is started again: the attempt that this handle started, or else any."""
        if self._attempt is None:
            self._put(None, "pause")
        else:
            self._put({"reason": "paused"}, "attempts", self._attempt, "end")

    def attach(self, rank: int, pid: int | None = None) -> "Attachment":
        """Make worker `rank` known as this process, or as `pid`, and its children, by which the trial's traffic is found.

        This process attaches through its host's agent, which notices when it ends; where there is none, and for another
        process, its process id is reported to the controller.
        """
        process = lease.describe_process(pid)
        self._starts[str(rank)] = process.start
        if pid is None or pid == os.getpid():
            self._close_lease(rank)
            held = lease.attach(self._address.study, self.name, rank, self._address.run)
            if held is not None:
                self._leases[str(rank)] = held
                return Attachment(self, rank, held)
            self._outbox.warn_once(_NO_AGENT, os.environ.get(lease.AGENT_VARIABLE) or lease.AGENT_PATH)
        body = {"pid": process.pid, "start": process.start, "namespace": process.namespace}
        self._put(body, "workers", str(rank))
        return Attachment(self, rank, None)

    def detach(self, rank: int) -> None:
        """Report that worker `rank` leaves on purpose: the process that this handle attached, or whichever is attached."""
        held = self._leases.pop(str(rank), None)
        close = None if held is None else held.close
        body = {"start": self._starts.pop(str(rank), 0)}
        self._outbox.put(PutRequest(self._address, ("workers", str(rank), "detach"), body, then=close))

    def progress(self, step: int, loss: float | None = None) -> None:
        """Report how many steps are complete since the trial's beginning. loss: at that step, if known; finite or not."""
        body = {"step": step} if loss is None else {"step": step, "loss": _loss(loss)}
        self._outbox.put(PutRequest(self._address, ("progress",), body, progress=True))

    def finish(self) -> None:
        """Report the trial finished; of several ends the first counts."""
        self._end(TrialStatus.FINISHED)

    def kill(self) -> None:
        """Report the trial stopped by its search; of several ends the first counts."""
        self._end(TrialStatus.KILLED)

    def fail(self) -> None:
        """Report that the trial could not be gone on with; of several ends the first counts."""
        self._end(TrialStatus.FAILED)

    def _end(self, status: TrialStatus) -> None:
        self._put({"status": status}, "status")

    def _close_lease(self, rank: int) -> None:
        held = self._leases.pop(str(rank), None)
        if held is not None:
            held.close()

    def _put(self, body: dict[str, Any] | None, *parts: str) -> None:
        self._outbox.put(PutRequest(self._address, parts, body))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        elif isinstance(error, Exception):
            self.fail()
        else:
            self.kill()


class Attachment(AbstractContextManager["Attachment"]):
    """An attached worker; leaving its block detaches it, leaving it by an exception leaves it to be noticed as lost."""

    def __init__(self, trial: TrialHandle, rank: int, held: lease.AgentLease | None) -> None:
        self._trial = trial
        self._rank = rank
        self._held = held

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._trial.detach(self._rank)
        elif self._held is not None:
            self._held.close()


def _listed(values: Any) -> Any:
    """Return a sequence as a list; what is none is left for the outbox or the controller to refuse."""
    try:
        return list(values)
    except Exception:  # noqa: BLE001  The values are the trainer's.
        return values


def _workers(workers: Any) -> Any:
    """Return workers in a form that JSON has: a bare host is the worker whose rank is its position."""
    listed = _listed(workers)
    if not isinstance(listed, list) or isinstance(workers, str):
        return workers
    return [Worker(rank, one) if isinstance(one, str) else one for rank, one in enumerate(listed)]


def _loss(loss: Any) -> Any:
    """Return a loss in a form that JSON has; what is none is left for the outbox to refuse."""
    try:
        number = float(loss)
    except Exception:  # noqa: BLE001  A tensor of several numbers raises an exception of its own kind.
        return loss
    return number if math.isfinite(number) else str(number)
