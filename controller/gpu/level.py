"""The GPU level: a policy decides, beside the event loop, which trials of all searches have which GPUs; engines carry it out.

    engines' events -> the journal -> the policy's decision, in a thread -> the journal -> classes of what it starts installed
                                                                        -> what holds, to the engines

A GPU that is taken from one search and given to another is kept back until the first one's engine has said that nothing of it
computes there any more. A search whose engine is not connected keeps the GPUs that its trials have: their processes may run on,
and nobody else could end them. It gets no further ones, and none is taken from it, until its engine is back, has said that it
leaves, or the study has ended. A controller that has just started does not know what engines use: until all of them are back,
for `RECONNECT_S` at most, each goes on with what it uses, and nothing else is started.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from beamer.daemon_thread import DaemonThread
from beamer.decision.core import Proposal
from beamer.errors import ConflictError, InputError, PlatformError
from beamer.gpu.decider import GpuView, PolicyDecider
from beamer.gpu.devices import Devices
from beamer.gpu.events import (
    FREEING,
    Allocated,
    GpusRequested,
    NodesSeen,
    RanksSeen,
    ReportRefused,
    RunFailed,
    RunFinished,
    TrialReported,
)
from beamer.gpu.model import Allocation, Cluster, Grant, Node
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.protocol import PING_ANSWER_S, PING_EVERY_S, EngineHello, SearchAssignment
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    MemberJoined,
    MemberLeft,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    study_of,
)
from beamer.studies.model import StudyStatus, check_name, split_key
from beamer.studies.wakes import Wakes
from controller.admission import check_admission
from controller.event_loop.wake_timer import WakeTimer
from controller.gpu.engines import EngineHub, SessionFacts
from controller.gpu.nodes import check_declared, up
from controller.journal.replay import Recovered
from controller.limited_log import LimitedLog
from controller.settings import ControllerSettings

COALESCE_S = 0.002  # events of one burst make one decision
REPORTS_S = 0.05  # reports alone call for a decision no more often than this
# Engines take so long to notice that a controller is gone and to connect to another.
RECONNECT_S = PING_EVERY_S + PING_ANSWER_S + 5.0
RETRY_S = 1.0  # A decision that failed, or that the journal could not take, is tried again after so long.
OF_ENGINES = (
    StudyRegistered, StudyEnded, StageRegistered, StageSealed, TrialRegistered, TargetSet, TargetDropped, TrialEnded,
    RanksSeen, GpusRequested, TrialReported, RunFinished, RunFailed, ReportRefused,
)  # fmt: skip


OF_ENGINE_ALONE = (
    StudyRegistered, StageRegistered, StageSealed, TrialRegistered, TargetSet, TargetDropped, AttemptStarted, AttemptEnded,
    TrialEnded, MemberJoined, MemberLeft,
)  # fmt: skip


class GpuLevel:
    """Decide which trials have which GPUs, and tell their engines.

    known: what the journal has led to so far. record: takes in an event, journaled. written: waits until all that was recorded
    is durable. classes_installed: waits until switches and agents have the classes of what was recorded. clock: Unix seconds.
    released: the latest decision that engines may carry out, by its generation.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        policy: GpuPolicy[Any],
        known: Recovered,
        record: Callable[[Event], bool],
        written: Callable[[], Awaitable[None]],
        classes_installed: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._fabric, self._limits = settings.fabric, settings.limits
        self._tracker, self._ledger = known.tracker, known.gpus
        self.engines = EngineHub(self, self._limits)
        self.policy = policy.name
        self._decider = PolicyDecider(self._tracker, self._ledger, policy, settings.seed)
        self._place = {host.name: place for place, host in enumerate(self._fabric.hosts)}  # Neighbours have consecutive places.
        self._record = record
        self._written = written
        self._classes_installed = classes_installed
        self._clock = clock
        self._declared: dict[str, tuple[Node, ...]] = {}  # The nodes of each study whose engine is connected.
        self._up: dict[str, tuple[Node, ...]] = {}  # The nodes of each study that its engine finds up.
        self._left: set[str] = set()  # studies without processes
        self._runs: dict[str, str] = {}  # The run of each study whose engine is connected.
        # Each grant with its GPUs, and the generation of the decision since which it holds.
        self._since = {key: (grant, self._ledger.devices[key], 0) for key, grant in self._ledger.granted.items()}
        self.released = self._ledger.decision.generation if self._ledger.decision else 0
        self._recovering: set[str] = set()  # studies whose engines may not know yet that this controller has started
        self._thread = DaemonThread("gpu-decisions")
        self._limited = LimitedLog()
        self._deciding = WakeTimer(self._decide)
        self._releasing: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    def start(self) -> None:
        """Decide for the time that has passed, and give engines the time to connect again."""
        self._recovering = {split_key(key)[0] for key in self._ledger.live_jobs}
        self._deciding.within(0.0)
        self._later(RECONNECT_S, self._end_recovery)

    def serves(self, study: str) -> bool:
        """Say whether an engine reports what happens to a study's trials, or will when it is back."""
        return study in self._declared or any(split_key(key)[0] == study for key in self._ledger.live_jobs)

    async def stop(self) -> None:
        """Decide no more; what runs on GPUs runs on."""
        await self._deciding.stop()
        for timer in self._timers:
            timer.cancel()
        if self._releasing is not None:
            self._releasing.cancel()
        self._thread.end()

    def take_in(self, event: Event) -> None:
        """Take in an event that was recorded."""
        if isinstance(event, Allocated):
            granted = {key: (grant, event.devices[key]) for key, grant in event.grants.items()}
            before = {key: since for key, since in self._since.items() if granted.get(key) == since[:2]}
            self._since = {key: before.get(key, (*of_key, event.generation)) for key, of_key in granted.items()}
            if self._releasing is None or self._releasing.done():
                self._releasing = asyncio.get_running_loop().create_task(self._release())
        elif Wakes.GPUS in event.wakes:
            self._deciding.within(COALESCE_S)
        elif Wakes.GPUS_PACE in event.wakes:
            self._deciding.within(REPORTS_S)
        if isinstance(event, FREEING):
            self._since.pop(event.trial, None)
        if isinstance(event, StudyEnded):
            self._recovering.discard(event.study)
        if isinstance(event, StudyEnded) and event.study not in self.engines.connected:
            self.engines.forget(event.study)  # Whoever ends a study has seen to its processes.
        if isinstance(event, StudyRegistered | StudyEnded):
            self.engines.renew()

    # The following methods take in what engines report.

    def engine_joined(self, study: str, hello: EngineHello) -> bool:
        """Take in that an engine serves a study from now on; return whether its run was known.

        Raises `InputError` for nodes that it cannot have, and for a study of which another run has not ended; `PlatformError`
        where processes of an earlier run may still be there.
        """
        known = self._tracker.studies.get(study)
        check_name(study, "study")
        check_name(hello.run, "run")
        if known is None and len(self._tracker.studies) >= self._limits.studies:
            raise InputError("study", study, f"one of at most {self._limits.studies} studies")
        is_another = known is not None and known.run != hello.run
        if known is not None and is_another and (known.status is not StudyStatus.ENDED or study in self._declared):
            raise ConflictError("study", study, f"a name that no other search has: run {known.run} of it has not ended")
        if is_another and self.engines.may_use(study):
            raise PlatformError(f"an earlier run of {study} may still compute on GPUs", "connect again in a while")
        others = {f"the engine of {name}": nodes for name, nodes in self._declared.items() if name != study}
        check_declared(hello.nodes, {**others, **self._nodes_held()}, self._fabric, self._limits.running_workers)
        self._see_nodes({**self._up, study: hello.nodes}, hello.nodes)
        self._declared[study] = self._up[study] = hello.nodes
        self._runs[study] = hello.run
        self._left.discard(study)
        self._deciding.within(COALESCE_S)
        return known is not None and not is_another

    def engine_lost(self, study: str) -> None:
        """Take in that a study has no engine any more: its trials keep what they have."""
        for of_engines in (self._declared, self._up, self._runs):
            of_engines.pop(study, None)
        record = self._tracker.studies.get(study)
        if record is None or record.status is StudyStatus.ENDED:  # The engine has not said that it leaves: it was cut off.
            self._later(RECONNECT_S, lambda: self._forget(study))
        self._deciding.within(COALESCE_S)

    def engine_left(self, study: str) -> None:
        """Take in that no process of a study runs, and none will until its engine is back."""
        if study in self._tracker.studies:
            self._left.add(study)
        self.engines.forget(study)
        self.engines.renew()
        self._deciding.within(COALESCE_S)

    def happened(self, study: str, event: Event) -> None:
        """Take in an event that an engine reports. Raises `InputError` for one that is not its to tell, or cannot be."""
        if isinstance(event, NodesSeen):
            seen = {node.name for node in event.nodes}
            up_there = tuple(node for node in self._declared[study] if node.name in seen)
            self._see_nodes({**self._up, study: up_there}, self._declared[study])
            self._up[study] = up_there
            return
        record = self._tracker.studies.get(study)
        if record is not None and record.run == self._runs.get(study) and record.status is StudyStatus.ENDED:
            return  # The study is over, even if its engine had not heard of that.
        if not isinstance(event, OF_ENGINES) or study_of(event) != study:
            raise InputError("event", type(event).__name__, f"what happens to {study} under its engine")
        check_admission(event, self._tracker, self._limits)
        self._record(replace(event, at_s=self._clock()))

    def check_not_of_engine(self, study: str, event: Event) -> None:
        """Check that an event is not one that a study's engine alone reports. Raises `ConflictError`."""
        if isinstance(event, OF_ENGINE_ALONE) and self.serves(study):
            expected = "a study whose trials no engine runs: a program reports progress, its search the rest"
            raise ConflictError("study", study, expected)

    async def written(self) -> None:
        """Wait until all that was recorded is durable. Raises `PlatformError`."""
        await self._written()

    def uses_changed(self) -> None:
        """Take in that an engine uses other GPUs than before: what waited for them may start."""
        self._recovering = {study for study in self._recovering if not self.engines.is_settled(study)}
        self.engines.renew()

    def assignment(self, study: str, session: SessionFacts) -> SearchAssignment:
        """Return what holds for a study: of the allocation that may be carried out, what has not been overtaken since."""
        record, run = self._tracker.studies.get(study), self._runs.get(study)
        of_study = [key for key in self._ledger.granted if split_key(key)[0] == study]
        used = self.engines.used(study)
        grants: dict[str, Grant] = {}
        devices: dict[str, Devices] = {}
        for key in of_study if study not in self._left else ():
            grant, of_key, since = self._since.get(key, (None, (), 0))
            goes_on = session.uses.issuperset(of_key)
            if grant and since <= self.released and (goes_on or (used.isdisjoint(of_key) and not self._recovering - {study})):
                grants[key], devices[key] = grant, of_key
        return SearchAssignment(
            number=0,
            taken=session.taken,
            known=session.known,
            settled=session.settled,
            ended=record is not None and record.run == run and record.status is StudyStatus.ENDED,
            left=study in self._left and not of_study,
            policy=self.policy,
            grants=grants,
            devices=devices,
        )

    def _see_nodes(self, up_by_study: Mapping[str, tuple[Node, ...]], declared: tuple[Node, ...]) -> None:
        """Have it known which nodes are up: those that all engines find up, and those where trials run that nobody can end."""
        held = self._names_held()
        found = sorted(up(declared, up_by_study.values(), held), key=lambda node: self._place[node.name])
        self._record(NodesSeen(self._clock(), tuple(found)))

    def _names_held(self) -> set[str]:
        return {node for key in self._held() for node, _ in self._ledger.devices[key]}

    def _nodes_held(self) -> dict[str, tuple[Node, ...]]:
        """Return the nodes on which trials of engines run that are not connected, by whom they belong to, for messages."""
        names = self._names_held()
        nodes = tuple(node for node in self._ledger.cluster.nodes if node.name in names)
        return {"searches whose engines are away, among them": nodes} if nodes else {}

    def _forget(self, study: str) -> None:
        """Take it that an engine that has not connected again has no processes."""
        if study not in self.engines.connected:
            self.engines.forget(study)
            self.engines.renew()

    def _end_recovery(self) -> None:
        """Take it that engines that have not connected again have no processes but on the GPUs that their trials hold."""
        self._recovering = set()
        self.engines.renew()

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._timers = {timer for timer in self._timers if timer.when() > loop.time()}
        self._timers.add(loop.call_later(delay_s, action))

    # Decisions.

    async def _decide(self) -> None:
        held = tuple(self._held())
        view, granted = self._view(held), {key: grant for key, grant in self._ledger.granted.items() if self._is_served(key)}
        proposal = await self._thread.do(self._decider.propose, lambda: view, granted, self._clock())
        try:
            if self._up:
                self._see_nodes(self._up, next(iter(self._declared.values())))
            self._decider.adopt(self._of_present(proposal, held), self._clock(), self._record)
        except PlatformError as error:
            self._limited.error("the journal takes no decision, the old one stays", None, reason=str(error))
            self._deciding.within(RETRY_S)
        except Exception as error:  # noqa: BLE001  # The state has changed meanwhile: another decision is made.
            reason = repr(error)
            self._limited.warning("a decision cannot be carried out, another one is made", None, reason, reason=reason)
            self._deciding.within(RETRY_S)
        if proposal.wake_s is not None:
            self._deciding.within(max(proposal.wake_s - self._clock(), REPORTS_S))

    def _view(self, held: Sequence[str]) -> GpuView:
        """Return the jobs whose engines are connected, and the GPUs and cores of nodes that are up which no others may use.

        held: as of `_held`.
        """
        submitted = self._ledger.submitted(self._tracker)
        taken = {device for key in held for device in self._ledger.devices[key]} | self.engines.used_unattended
        gpus = Counter(node for node, _ in taken)
        cpus: defaultdict[str, float] = defaultdict(float)
        for key in held:
            job, grant = self._ledger.job(key), self._ledger.granted[key]
            assert job, "it is granted GPUs"
            for counts, cores in ((grant.gpus, job.request.worker_cpus), (grant.servers, job.request.server_cpus)):
                for node, count in counts:
                    cpus[node] += count * cores
        names = {node.name for node in up(self._ledger.cluster.nodes, self._up.values(), ())}
        nodes = tuple(
            replace(node, gpus=max(node.gpus - gpus[node.name], 0), cpus=max(node.cpus - cpus[node.name], 0.0))
            for node in self._ledger.cluster.nodes
            if node.name in names
        )
        return Cluster(nodes), tuple(job for job in submitted if self._is_served(job.key))

    def _of_present(self, proposal: Proposal[Any, Allocation], held: Sequence[str]) -> Proposal[Any, Allocation]:
        """Return a proposal without what has ended or come to its target since, and with what others hold.

        held: as of `_held` when it was asked for: an engine that has come back since keeps what its trials have.
        """
        submitted = {job.key for job in self._ledger.submitted(self._tracker)}
        granted = self._ledger.granted
        wanted = {key: grant for key, grant in proposal.content.items() if key in submitted and self._is_served(key)}
        kept = {key: granted[key] for key in (*held, *self._held()) if key in granted and split_key(key)[0] not in self._left}
        return replace(proposal, content={**wanted, **kept})

    def _is_served(self, key: str) -> bool:
        study = split_key(key)[0]
        return study in self.engines.connected and study not in self._left

    def _held(self) -> Iterator[str]:
        """Yield the trials whose processes may run although no engine can be asked to end them."""
        for key in self._ledger.granted:
            if not self._is_served(key) and split_key(key)[0] not in self._left:
                yield key

    async def _release(self) -> None:
        """Have engines carry out the latest allocation, once it is durable and classes are installed for what it starts."""
        while (latest := self._ledger.decision) is not None and latest.generation > self.released:
            try:
                await self._written()
            except PlatformError:
                await asyncio.sleep(RETRY_S)
                continue
            await self._classes_installed()
            self.released = latest.generation
            self.engines.renew()
