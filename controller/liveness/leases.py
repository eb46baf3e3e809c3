"""Whether workers' processes are still there, from what host agents report, and what follows where they are not.

A worker that attached through its agent holds a lease for as long as its connection to the agent lasts. One that attached over
HTTP is there until its agent, if it has one, does not find its process any more. Whatever is missing has a grace: an agent that
was restarted, or the controller, hears of every lease again within it.

Pure: reports and times come in as arguments, events go out.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ConfigDict, TypeAdapter

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.protocol import WorkerLease, Workers
from beamer.studies.events import AttemptEnded, Event, StudyEnded, StudyRegistered, TrialEnded, WorkerAttached
from beamer.studies.model import EndReason, Process, TrialStatus, split_key, trial_key
from beamer.studies.records import AttemptRecord, TrialRecord
from beamer.studies.registration import check_process
from beamer.studies.tracker import Tracker
from beamer.studies.versions import Versioned

LEASES = Versioned("leases")
"""The part of a snapshot that is what events have told of leases."""

_ROOT = 0  # the user that may attach to everybody's attempts


@dataclass(frozen=True)
class _State:
    """See `Leases`."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    populated: dict[str, int]
    owner: dict[str, tuple[int, int]]


_STATE = TypeAdapter(_State)


@dataclass(frozen=True)
class Unattached:
    """A process that is not taken for a worker, and why. trial: the trial's key."""

    trial: str
    rank: int
    agent: str
    reason: str


@dataclass(frozen=True)
class _Listed:
    """A lease as its agent reports it."""

    agent: str
    lease: WorkerLease


class _Claim(NamedTuple):
    """A lease of a rank that its trial's present or last attempt has on `host`."""

    listed: _Listed
    trial: TrialRecord
    attempt: AttemptRecord
    host: str


@dataclass(frozen=True)
class _Absent:
    """A worker of an attempt whose process is not there any more."""

    attempt: int
    rank: int
    process: Process


@dataclass(frozen=True)
class _Vacant:
    """An attempt whose workers have all detached."""

    attempt: int


@dataclass(frozen=True)
class _Left:
    """A lease whose worker has detached, and which its agent reports all the same."""

    attempt: int
    listed: _Listed


_Missing = _Absent | _Vacant


class Leases:
    """Know which leases the agents hold, and end the attempts whose workers are gone for longer than `grace_s` seconds."""

    def __init__(self, fabric: Fabric, grace_s: float) -> None:
        self._agent_of = {host.name: host.agent or "" for host in fabric.hosts}
        self._grace_s = grace_s
        self._reports: dict[str, Workers] = {}
        # Trials and ranks of the workers that each agent reports as gone.
        self._gone: dict[str, frozenset[tuple[str, int]]] = {}
        self._impossible: dict[str, list[Unattached]] = {}  # leases of processes that no worker can be, by agent
        self._refused: dict[tuple[str, int], Unattached] = {}  # Leases refused since `due` was last asked, by trial and rank.
        self._attached: dict[_Listed, int] = {}  # the attempt that each lease was attached to last
        self._populated: dict[str, int] = {}  # the last attempt that a worker has attached to, by trial
        self._owner: dict[str, tuple[int, int]] = {}  # An attempt and the user that it belongs to, by trial.
        self._lost: dict[str, tuple[int, frozenset[int]]] = {}  # a lost attempt and its ranks that held leases, by trial
        self._since: dict[_Missing | _Left, float] = {}
        self._held: dict[tuple[str, int], _Listed] = {}  # The lease that holds each rank, by trial and rank.
        self.next_s: float | None = None

    def state(self) -> str:
        """Return as JSON what events have told; what agents report they will report again."""
        return _STATE.dump_json(_State(self._populated, self._owner)).decode()

    def restore(self, state: str) -> None:
        """Know what `state` returned. Raises `ValueError` for anything else."""
        read = _STATE.validate_json(state)
        self._populated, self._owner = read.populated, read.owner

    def report(self, agent: str, message: Workers) -> None:
        """Take in what an agent holds and misses; it replaces what it reported before.

        A lease of a process that no worker can be does not count, but all the others of the report do.
        """
        leases: list[WorkerLease] = []
        self._impossible[agent] = []
        for lease in message.leases:
            try:
                check_process(lease.process)
            except InputError as error:
                found = Unattached(trial_key(lease.study, lease.trial), lease.rank, agent, str(error))
                self._impossible[agent].append(found)
            else:
                leases.append(lease)
        self._reports[agent] = message.model_copy(update={"leases": tuple(leases)})
        self._gone[agent] = frozenset((worker.job, worker.rank) for worker in message.gone)
        listed = {_Listed(agent, lease) for lease in leases}
        self._attached = {held: n for held, n in self._attached.items() if held.agent != agent or held in listed}

    def forget(self, agent: str) -> None:
        """Take in that an agent is gone: what it holds and misses is not known until it reports again."""
        self.report(agent, Workers())
        del self._reports[agent], self._impossible[agent], self._gone[agent]

    def refuse(self, event: WorkerAttached, reason: str) -> None:
        """Take in that the worker of a lease could not be attached, which `due` had asked for."""
        holder = self._held[event.trial, event.rank]
        self._attached.pop(holder, None)
        self._refused[event.trial, event.rank] = Unattached(event.trial, event.rank, holder.agent, reason)

    def take_in(self, event: Event, tracker: Tracker) -> None:
        """Take in an event that the tracker has applied, now or from the journal."""
        match event:
            case TrialEnded(trial=key):
                self._forget(lambda trial: trial == key)
            case StudyRegistered(study=study) | StudyEnded(study=study):
                self._forget(lambda trial: split_key(trial)[0] == study and _is_over(tracker.trials.get(trial)))
        if isinstance(event, WorkerAttached) and (attempt := tracker.trials[event.trial].attempt) is not None:
            self._populated[event.trial] = attempt.seq
            if event.process.uid is not None and self._owner_of(event.trial, attempt) is None:
                self._owner[event.trial] = attempt.seq, event.process.uid

    def _forget(self, is_over: Callable[[str], bool]) -> None:
        """Forget the attempts of trials that are over."""
        self._populated = {trial: seq for trial, seq in self._populated.items() if not is_over(trial)}
        self._owner = {trial: owner for trial, owner in self._owner.items() if not is_over(trial)}
        self._lost = {trial: lost for trial, lost in self._lost.items() if not is_over(trial)}
        self._attached = {
            held: seq for held, seq in self._attached.items() if not is_over(trial_key(held.lease.study, held.lease.trial))
        }

    @property
    def held(self) -> frozenset[str]:
        """The keys of trials of which a worker held a lease when `due` was asked last."""
        return frozenset(key for key, _ in self._held)

    def unattached(self, tracker: Tracker) -> list[Unattached]:
        """Return the processes that agents do not mark, and those whose leases attach nothing.

        An agent speaks of ranks on its own hosts; of another rank it holds a lease at most, which is said so.
        """
        said = [
            Unattached(worker.job, worker.rank, agent, reason)
            for agent, message in self._reports.items()
            for worker, reason in message.refused
        ]
        said += [impossible for of_agent in self._impossible.values() for impossible in of_agent]
        hosts: dict[str, dict[int, str]] = {}
        found = [one for one in said if self._agent_of.get(_host(one.trial, one.rank, tracker, hosts)) == one.agent]
        found += self._refused.values()
        for claim in self._claims(tracker):
            reason = None if claim.trial.status.is_finished else self._why_not(claim)
            if reason is not None:
                found.append(Unattached(claim.trial.key, claim.listed.lease.rank, claim.listed.agent, reason))
        return found

    def due(self, tracker: Tracker, now: float) -> list[Event]:
        """Return the events that follow now; `next_s` is when to ask again if nothing changes before, None for never."""
        self._refused.clear()
        claims = list(self._claims(tracker))
        left = self._left(claims)
        self._since = {what: self._since.get(what, now) for what in left} | {
            what: since_s for what, since_s in self._since.items() if not isinstance(what, _Left)
        }
        # A lease that is reported even after the grace was taken up again too soon after its end to be told from it.
        leaving = {what.listed for what in left if self._since[what] + self._grace_s > now}
        self._held = self._holders(claims, leaving)
        missing = {what: trial for trial in tracker.running for what in self._missing(trial)}
        self._since = {what: self._since.get(what, now) for what in (*left, *missing)}
        events: list[Event] = list(self._attaching(tracker, now))
        ended: set[str] = set()
        for what, trial in missing.items():
            if self._since[what] + self._grace_s <= now and trial.key not in ended:
                ended.add(trial.key)
                events.append(self._end(trial, what, now))
        ahead = [since_s + self._grace_s for since_s in self._since.values() if since_s + self._grace_s > now]
        self.next_s = min(ahead, default=None)
        return events

    def _why_not(self, claim: _Claim) -> str | None:
        """Say why a lease attaches nothing; None if it does."""
        if self._agent_of.get(claim.host) != claim.listed.agent:
            return f"that rank of its attempt is on {claim.host}"
        uid, owner = claim.listed.lease.process.uid, self._owner_of(claim.trial.key, claim.attempt)
        return None if _may(uid, owner) else f"its process is user {uid}'s, its attempt user {owner}'s"

    def _owner_of(self, trial: str, attempt: AttemptRecord) -> int | None:
        """Return the user whose worker was the first to attach to a trial's attempt, None before that."""
        seq, uid = self._owner.get(trial, (0, None))
        return uid if seq == attempt.seq else None

    def _claims(self, tracker: Tracker) -> Iterator[_Claim]:
        """Yield every lease of a rank that its trial's present or last attempt has.

        The others wait until there is such an attempt, or such a run.
        """
        hosts: dict[str, dict[int, str]] = {}
        for agent, message in self._reports.items():
            for lease in message.leases:
                trial = tracker.trials.get(trial_key(lease.study, lease.trial))
                attempt = trial.attempt if trial is not None else None
                if trial is None or attempt is None or lease.run not in (None, tracker.studies[trial.study].run):
                    continue
                if host := _host(trial.key, lease.rank, tracker, hosts):
                    yield _Claim(_Listed(agent, lease), trial, attempt, host)

    def _left(self, claims: Iterable[_Claim]) -> list[_Left]:
        found: list[_Left] = []
        for listed, _, attempt, _ in claims:
            if attempt.processes.get(listed.lease.rank) == listed.lease.process:
                self._attached[listed] = attempt.seq
            elif self._is_spent(listed, attempt) and attempt.ended_s is None and listed.lease.rank not in attempt.processes:
                found.append(_Left(attempt.seq, listed))
        return found

    def _is_spent(self, listed: _Listed, attempt: AttemptRecord) -> bool:
        return self._attached.get(listed) == attempt.seq

    def _holders(self, claims: Iterable[_Claim], leaving: set[_Listed]) -> dict[tuple[str, int], _Listed]:
        """Return who holds the lease of each rank; of several processes it is the one that started last."""
        holders: dict[tuple[str, int], _Listed] = {}
        for claim in claims:
            listed = claim.listed
            if not (leaving and listed in leaving) and self._why_not(claim) is None:
                key = claim.trial.key, listed.lease.rank
                other = holders.get(key)
                holders[key] = listed if other is None else max(other, listed, key=_started)
        return holders

    def _attaching(self, tracker: Tracker, now: float) -> Iterator[WorkerAttached]:
        holders: dict[str, dict[int, _Listed]] = {}
        for (key, rank), listed in sorted(self._held.items(), key=lambda entry: entry[0]):
            holders.setdefault(key, {})[rank] = listed
        for key, found in holders.items():
            trial = tracker.trials[key]
            attempt = trial.attempt
            assert attempt is not None
            if trial.status is TrialStatus.RUNNING:
                processes = attempt.processes
                found = {rank: listed for rank, listed in found.items() if processes.get(rank) != listed.lease.process}
            elif trial.status is not TrialStatus.SILENT and not self._is_back(trial, attempt, found):
                continue
            owner = self._owner_of(key, attempt)
            for rank, listed in found.items():
                # Leases of several users may have come together: the attempt belongs to the first of them.
                if not _may(listed.lease.process.uid, owner):
                    continue
                owner = listed.lease.process.uid if owner is None else owner
                self._attached[listed] = attempt.seq
                yield WorkerAttached(now, key, rank, listed.lease.process)

    def _is_back(self, trial: TrialRecord, attempt: AttemptRecord, found: dict[int, _Listed]) -> bool:
        """Say whether the workers of a lost attempt are there again: all that held leases, and not just its survivors."""
        if trial.status is not TrialStatus.LOST or all(self._is_spent(listed, attempt) for listed in found.values()):
            return False
        lost, ranks = self._lost.get(trial.key, (0, frozenset()))
        if lost != attempt.seq or not ranks:  # The controller was restarted since the attempt was lost.
            ranks = frozenset(worker.rank for worker in attempt.workers)
        return ranks <= found.keys()

    def _missing(self, trial: TrialRecord) -> Iterator[_Missing]:
        attempt = trial.attempt
        assert attempt is not None
        was_populated = self._populated.get(trial.key) == attempt.seq
        if not attempt.processes and not was_populated:
            return  # In a search whose trials do not attach, this holds for most of them.
        host = {worker.rank: worker.host for worker in attempt.workers}
        for rank, process in attempt.processes.items():
            gone = self._gone.get(self._agent_of.get(host[rank], ""), ())
            holder = self._held.get((trial.key, rank))
            if holder is not None and holder.lease.process != process:
                continue  # Another process has taken the worker's place.
            # A connection that a child has inherited may outlive the worker.
            is_gone = (trial.key, rank) in gone
            if is_gone or (process.leased and holder is None):
                yield _Absent(attempt.seq, rank, process)
        is_held = any((trial.key, rank) in self._held for rank in host)
        if not attempt.processes and not is_held and was_populated:
            yield _Vacant(attempt.seq)

    def _end(self, trial: TrialRecord, what: _Missing, now: float) -> AttemptEnded:
        attempt = trial.attempt
        assert attempt is not None
        if isinstance(what, _Vacant):
            return AttemptEnded(now, trial.key, attempt.name, EndReason.PAUSED)
        self._lost[trial.key] = attempt.seq, frozenset(rank for rank, p in attempt.processes.items() if p.leased)
        return AttemptEnded(now, trial.key, attempt.name, EndReason.LOST)


def _host(trial: str, rank: int, tracker: Tracker, found: dict[str, dict[int, str]]) -> str:
    """Return the host of a rank of a trial's present or last attempt, "" where there is none. found: so far, by trial."""
    if trial not in found:
        known = tracker.trials.get(trial)
        workers = known.attempt.workers if known is not None and known.attempt is not None else ()
        found[trial] = {worker.rank: worker.host for worker in workers}
    return found[trial].get(rank, "")


def _may(uid: int | None, owner: int | None) -> bool:
    """Say whether a user's process may attach to an attempt of `owner`; None: not known."""
    return uid in (None, _ROOT, owner) or owner is None


def _is_over(trial: TrialRecord | None) -> bool:
    return trial is None or trial.status.is_finished


def _started(listed: _Listed) -> tuple[int, int]:
    return listed.lease.process.start, listed.lease.process.pid
