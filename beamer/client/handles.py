"""Studies, stages, trials and attached workers, as trainers and tuners hold them."""

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from html import escape
from types import TracebackType
from typing import Any

from beamer.client import lease
from beamer.client.membership import Membership, membership_of
from beamer.client.notebook import study_html
from beamer.client.outbox import Outbox
from beamer.client.request import Address, PutRequest, name_of
from beamer.client.stops import is_planned, is_stop
from beamer.client.values import count, finite_or_name, listed, this_machine, workers_of
from beamer.studies.model import Process, Rung, StageStatus, TrialStatus, Worker

SHOWN_WITHIN_S = 0.5  # A notebook waits so long for the controller, and for its last answer a time-out longer.
_NO_AGENT = (
    "no Beamer agent takes this worker at %s: the controller is told its process id instead. If the process is killed, that "
    "is noticed only by an agent that sees its host's processes, or when nothing was heard of the trial for long"
)


class StudyHandle(AbstractContextManager["StudyHandle"]):
    """A run of a study, of which this process is a member until it leaves it.

    Leaving its block leaves the study; leaving it by an exception does not: it may be gone on with.
    """

    def __init__(
        self, outbox: Outbox, address: Address, ended: Callable[[], None] = lambda: None, member: str | None = None
    ) -> None:
        self._outbox = outbox
        self._address = address
        self._ended = ended
        self._member = member
        self._membership: Membership | None = None

    @property
    def name(self) -> str:
        """The study's name."""
        return self._address.study

    @property
    def run(self) -> str:
        """What tells this run of the study from others; for processes that take part in it."""
        return str(self._address.run)

    def join(self) -> None:
        """Make this process a member of the study, as `Client.study` does."""
        self._membership = membership_of(self._outbox, self._address, self, self._member)

    def declare(
        self, weight: float | None = None, rungs: Sequence[Rung] | None = None, barriers: bool | None = None
    ) -> None:  # fmt: skip
        """Change what is declared of the study; what is None stays as it is."""
        given = {"weight": weight, "rungs": listed(rungs), "barriers": barriers}
        self._put({"run": self.run} | {name: value for name, value in given.items() if value is not None})

    def disconnect(self) -> None:
        """Tell the controller no more that this process takes part, without leaving the study."""
        if self._membership is not None:
            self._membership.end()

    def trial(self, name: str, budget: int | None = None) -> "TrialHandle":
        """Register a trial. budget: the step at which it is complete, None where that is not known."""
        address = replace(self._address, trial=name_of(name))
        given = {"budget": count(budget), "member": self._membership.name if self._membership else None}
        self._outbox.put(PutRequest(address, body={key: value for key, value in given.items() if value is not None}))
        return TrialHandle(self._outbox, address)

    def stage(self, name: str) -> "StageHandle":
        """Register a stage: from now on its completion time counts."""
        address = replace(self._address, stage=name_of(name))
        self._outbox.put(PutRequest(address, body={}))
        return StageHandle(self._outbox, address)

    def end(self) -> None:
        """Report the search over for all: trials that have not ended are killed, its stages are not waited for any more."""
        self.disconnect()
        self._put(None, "end")
        self._ended()

    def leave(self) -> None:
        """Report that this process has done its part: the trials that it began are killed unless they have ended.

        The study ends when its last member has left.
        """
        if self._membership is not None and self._membership.leave(self):
            self._ended()

    def _put(self, body: dict[str, Any] | None, *parts: str) -> None:
        self._outbox.put(PutRequest(self._address, parts, body))

    def __repr__(self) -> str:
        return f"<Study {self.name!r} run {self.run!r} {self._outbox.named}>"

    def _repr_html_(self) -> str:
        """Return the study as a notebook shows it: as the controller answers within a second, or else its `repr`."""
        seen: list[Any] = []

        def take(answer: Any) -> bool:
            seen.append(answer)
            return True

        with suppress(Exception):  # A notebook goes on whatever is answered.
            if self._outbox.poll(self._address, take, SHOWN_WITHIN_S):
                return study_html(repr(self), seen[0])
        return f"<p>{escape(repr(self))}</p>"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.leave()


class StageHandle(AbstractContextManager["StageHandle"]):
    """A registered stage; leaving its block seals it."""

    def __init__(self, outbox: Outbox, address: Address) -> None:
        self._outbox = outbox
        self._address = address

    def add(self, trial: "TrialHandle | str", step: int) -> None:
        """Let the stage wait until a trial, which joins it, has completed `step` steps since the trial's beginning."""
        name = name_of(trial.name if isinstance(trial, TrialHandle) else trial)
        body = {"step": count(step), "stage": self._address.stage}
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

    def __repr__(self) -> str:
        return f"<Stage {self._address.stage!r} of {self._address.study!r} {self._outbox.named}>"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seal()


class TrialHandle(AbstractContextManager["TrialHandle"]):
    """A trial; leaving its block reports it finished, leaving it by an exception failed or, where that stops it, killed.

    Exceptions that stop a trial are interruptions, and those by which tuners and trainers end one: see `beamer.client.stops`.
    """

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
        self._put({"step": count(step)}, "target")

    def start(
        self,
        workers: Sequence[Worker | str],
        sync_bytes: int | None = None,
        collective: str = "ring",
        compute_s: float | None = None,
        overlap: float = 0.0,
        attempt: str | None = None,
        step: int | None = None,
    ) -> str:
        """Report that the trial runs on these workers from now on, instead of where it ran before; return the attempt's name.

        workers: a bare host is the worker whose rank is its position, and one host alone is the only worker. A host is known by
        the fabric's name, by its address there, and as `localhost` or its own name where it is this machine. sync_bytes,
        collective, compute_s, overlap: as in `Profile`. attempt: a name that no other attempt of the trial has; None: a new
        one. step: of the trial at which the attempt begins, an earlier one than it has come to where it copies another trial
        or restarts from an older checkpoint; None: as the first report of progress says.
        """
        self._attempt = uuid.uuid4().hex if attempt is None else str(attempt)
        body: dict[str, Any] = {
            "workers": workers_of(workers),
            "sync_bytes": count(sync_bytes),
            "collective": collective,
            "compute_s": compute_s,
            "overlap": overlap,
        }
        if step is not None:
            body["step"] = count(step)
        here = this_machine(body["workers"])
        if here is not None:
            body["here"] = here
        self._put(body, "attempts", self._attempt)
        return self._attempt

    def pause(self) -> None:
        """Report that the trial does not run until it is started again: the attempt that this handle started, or else any."""
        if self._attempt is None:
            self._put(None, "pause")
        else:
            self._put({"reason": "paused"}, "attempts", self._attempt, "end")

    def lose(self, attempt: str) -> None:
        """Report that the processes of an attempt are gone: the trial may go on in another one."""
        self._put({"reason": "lost"}, "attempts", attempt, "end")

    def attach(self, rank: int, pid: int | Process | None = None) -> "Attachment":
        """Make worker `rank` known as this process, or as `pid`, and its children, by which the trial's traffic is found.

        pid: of another process of this machine, or a process of any machine, as that describes itself. This process attaches
        through its host's agent, which notices when it ends; where there is none, and for another process, its process id is
        reported to the controller.
        """
        process = pid if isinstance(pid, Process) else lease.describe_process(pid)
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
        body = {"step": count(step)} if loss is None else {"step": count(step), "loss": finite_or_name(loss)}
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

    def __repr__(self) -> str:
        return f"<Trial {self.name!r} of {self._address.study!r} {self._outbox.named}>"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        elif is_stop(error):
            self.kill()
        else:
            self.fail()


class Attachment(AbstractContextManager["Attachment"]):
    """An attached worker; leaving its block detaches it, leaving it by an exception leaves it to be noticed as lost.

    An exception by which a tuner or a trainer ends a trial (`beamer.client.stops`) detaches it, too.
    """

    def __init__(self, trial: TrialHandle, rank: int, held: lease.AgentLease | None) -> None:
        self._trial = trial
        self._rank = rank
        self._held = held

    def __repr__(self) -> str:
        held = "through its host's agent" if self._held is not None else "by its process id"
        return f"<Attachment of rank {self._rank!r} to {self._trial!r} {held}>"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or is_planned(error):
            self._trial.detach(self._rank)
        elif self._held is not None:
            self._held.close()
