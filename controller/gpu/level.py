"""The GPU level: a policy decides, beside the event loop, which trials of all searches have which GPUs; engines carry it out.

    engines' events -> the journal -> the policy's decision, in a thread -> the journal -> classes of what it starts installed
                                                                        -> what holds, to the engines

A GPU that is taken from one search and given to another is kept back until the first one's engine has said that nothing of it
computes there any more. A search whose engine is not connected keeps the GPUs that its trials have: their processes may run on,
and nobody else could end them. It gets no further ones, and none is taken from it, until its engine is back, has said that it
leaves, or the study has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from beamer.daemon_thread import DaemonThread
from beamer.decision.core import Proposal
from beamer.errors import ConflictError, InputError, PlatformError
from beamer.gpu.decider import GpuView, PolicyDecider
from beamer.gpu.devices import Devices
from beamer.gpu.events import (
    Allocated,
    GpusRequested,
    NodesSeen,
    RanksSeen,
    ReportRefused,
    RunFailed,
    RunFinished,
    TrialReported,
)
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.model import Allocation, Cluster, Grant, Job, Node
from beamer.gpu.policy import GpuPolicy
from beamer.gpu.protocol import EngineHello, Standing
from beamer.gpu.scheduler import WAKING
from beamer.network.fabric import Fabric
from beamer.studies.events import (
    Event,
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
from beamer.studies.model import StudyStatus, split_key
from beamer.studies.tracker import Tracker
from controller.admission import check_admission
from controller.alarm import Alarm
from controller.gpu.engines import Device, EngineHub
from controller.gpu.nodes import check_declared, up
from controller.limited_log import LimitedLog
from controller.limits import Limits

COALESCE_S = 0.002  # events of one burst make one decision
REPORTS_S = 0.05  # reports alone call for a decision no more often than this
RECONNECT_S = 10.0  # for engines to connect again after a start, or to end the processes of a study that has ended
RETRY_S = 1.0  # after the journal could not be written
OF_ENGINES = (
    StudyRegistered, StudyEnded, StageRegistered, StageSealed, TrialRegistered, TargetSet, TargetDropped, TrialEnded,
    RanksSeen, GpusRequested, TrialReported, RunFinished, RunFailed, ReportRefused,
)  # fmt: skip


class GpuLevel:
    """Decide which trials have which GPUs, and tell their engines.

    tracker: with `ledger` among its ledgers. policy, seed: as of `PolicyDecider`. record: takes in an event, journaled.
    written: waits until all that was recorded is durable. classes_installed: waits until switches and agents have the classes
    of what was recorded. clock: Unix seconds.
    """

    def __init__(
        self,
        fabric: Fabric,
        tracker: Tracker,
        ledger: GpuLedger,
        policy: GpuPolicy[Any],
        seed: int,
        limits: Limits,
        record: Callable[[Event], bool],
        written: Callable[[], Awaitable[None]],
        classes_installed: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self.engines = EngineHub(self, limits)
        self.policy = policy.name
        self._fabric = fabric
        self._tracker = tracker
        self._ledger = ledger
        self._decider = PolicyDecider(tracker, ledger, policy, seed)
        self._limits = limits
        self._record = record
        self._written = written
        self._classes_installed = classes_installed
        self._clock = clock
        self._declared: dict[str, tuple[Node, ...]] = {}  # nodes, by study whose engine is connected
        self._up: dict[str, tuple[Node, ...]] = {}  # those that its engine finds up
        self._left: set[str] = set()  # studies without processes
        self._released = ledger.decision  # the latest allocation that engines may carry out
        self._thread = DaemonThread("gpu-decisions")
        self._limited = LimitedLog()
        self._deciding = Alarm(self._decide)
        self._releasing: asyncio.Task[None] | None = None
        self._presuming: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Decide for the time that has passed, and give engines the time to connect again before others get what was theirs."""
        presumed: dict[str, set[Device]] = {}
        for key in self._ledger.live_jobs:
            presumed.setdefault(split_key(key)[0], set()).update(self._ledger.devices.get(key, ()))
        for study, devices in presumed.items():
            self.engines.presume(study, devices)
        self._deciding.within(0.0)
        self._presuming = asyncio.get_running_loop().call_later(RECONNECT_S, self._presume_no_more, presumed)

    async def stop(self) -> None:
        """Decide no more; what runs on GPUs runs on."""
        await self._deciding.stop()
        if self._presuming is not None:
            self._presuming.cancel()
        if self._releasing is not None:
            self._releasing.cancel()
        self._thread.end()

    def take_in(self, event: Event) -> None:
        """Take in an event that was recorded."""
        if isinstance(event, Allocated):
            if self._releasing is None or self._releasing.done():
                self._releasing = asyncio.get_running_loop().create_task(self._release())
        elif isinstance(event, WAKING):
            self._deciding.within(REPORTS_S if isinstance(event, TrialReported) else COALESCE_S)
        if isinstance(event, StudyEnded) and event.study not in self.engines.connected:
            self.engines.forget(event.study)  # whoever ends it has seen to its processes
        if isinstance(event, StudyRegistered | StudyEnded):
            self.engines.renew()

    # What engines report.

    def engine_joined(self, study: str, hello: EngineHello) -> bool:
        """Take in that an engine serves a study from now on; return whether its run was known.

        Raises `InputError` for nodes that it cannot have, and for a study of which another run has not ended.
        """
        known = self._tracker.studies.get(study)
        if known is not None and known.run != hello.run and known.status is not StudyStatus.ENDED:
            raise ConflictError("study", study, f"a name that no other search has: run {known.run} of it has not ended")
        others = {name: nodes for name, nodes in self._declared.items() if name != study}
        check_declared(hello.nodes, others, self._fabric, self._limits.running_workers)
        self._declared[study] = self._up[study] = hello.nodes
        self._left.discard(study)
        self._see_nodes()
        self._deciding.within(COALESCE_S)
        return known is not None and known.run == hello.run

    def engine_lost(self, study: str) -> None:
        """Take in that a study has no engine any more: its trials keep what they have."""
        self._declared.pop(study, None)
        self._up.pop(study, None)
        record = self._tracker.studies.get(study)
        if record is not None and record.status is StudyStatus.ENDED:  # without having said that it leaves: it was cut off
            asyncio.get_running_loop().call_later(RECONNECT_S, self._presume_no_more, [study])
        self._deciding.within(COALESCE_S)

    def engine_left(self, study: str) -> None:
        """Take in that no process of a study runs, and none will until its engine is back."""
        self._left.add(study)
        self.engines.forget(study)
        self.engines.renew()
        self._deciding.within(COALESCE_S)

    def happened(self, study: str, event: Event) -> None:
        """Take in an event that an engine reports. Raises `InputError` for one that is not its to tell, or cannot be."""
        if isinstance(event, NodesSeen):
            self._up[study] = tuple(node for node in self._declared[study] if node in event.nodes)
            self._see_nodes()
            return
        if not isinstance(event, OF_ENGINES) or study_of(event) != study:
            raise InputError("event", type(event).__name__, f"what happens to {study} under its engine")
        check_admission(event, self._tracker, self._limits)
        self._record(replace(event, at_s=self._clock()))

    async def written(self) -> None:
        """Wait until all that was recorded is durable. Raises `PlatformError`."""
        await self._written()

    def uses_changed(self) -> None:
        """Take in that an engine uses other GPUs than before: what waited for them may start."""
        self.engines.renew()

    def standing(self, study: str, taken: int, known: bool) -> Standing:
        """Return what holds for a study: of the allocation that may be carried out, what has not been overtaken since."""
        record = self._tracker.studies.get(study)
        grants: dict[str, Grant] = {}
        devices: dict[str, Devices] = {}
        released, used = self._released, self.engines.used(study)
        for key, grant in self._ledger.granted.items() if released else ():
            assert released is not None
            of_key = self._ledger.devices[key]
            if (
                split_key(key)[0] == study
                and used.isdisjoint(of_key)
                and (released.grants.get(key), released.devices.get(key)) == (grant, of_key)
            ):
                grants[key], devices[key] = grant, of_key
        holds = any(split_key(key)[0] == study for key in self._ledger.granted)
        return Standing(
            number=0,
            taken=taken,
            known=known,
            ended=record is not None and record.status is StudyStatus.ENDED,
            left=study in self._left and not holds,
            policy=released.policy if released else self.policy,
            grants=grants,
            devices=devices,
        )

    def _see_nodes(self) -> None:
        declared = next(iter(self._declared.values()), self._ledger.cluster.nodes)
        self._record(NodesSeen(self._clock(), up(declared, self._up.values())))

    def _presume_no_more(self, studies: Iterable[str]) -> None:
        """Take it that engines that have not connected again have no processes but on the GPUs that their trials hold."""
        for study in studies:
            if study not in self.engines.connected:
                self.engines.forget(study)
        self.engines.renew()

    # Decisions.

    async def _decide(self) -> None:
        now = self._clock()
        view, granted = self._view(), {key: grant for key, grant in self._ledger.granted.items() if self._is_served(key)}
        proposal = await self._thread.do(self._decider.propose, lambda: view, granted, now)
        try:
            self._decider.adopt(self._of_present(proposal), self._clock(), self._record)
        except InputError as error:  # nodes went while it was made
            self._limited.warning("a decision cannot be carried out, another one is made", None, reason=str(error))
            self._deciding.within(REPORTS_S)
        except PlatformError as error:
            self._limited.error("the journal takes no decision, the old one stays", None, reason=str(error))
            self._deciding.within(RETRY_S)
        if proposal.wake_s is not None:
            self._deciding.within(max(proposal.wake_s - self._clock(), REPORTS_S))

    def _view(self) -> GpuView:
        """Return the jobs whose engines are connected, and the GPUs that no others hold."""
        submitted = self._ledger.submitted(self._tracker)
        held: dict[str, int] = {}
        for key in self._held():
            for node, _ in self._ledger.devices[key]:
                held[node] = held.get(node, 0) + 1
        nodes = tuple(replace(node, gpus=node.gpus - held.get(node.name, 0)) for node in self._ledger.cluster.nodes)
        return Cluster(nodes), tuple(job for job in submitted if self._is_served(job.key))

    def _of_present(self, proposal: Proposal[Any, Allocation]) -> Proposal[Any, Allocation]:
        """Return a proposal without what has ended or come to its target since, and with what others hold."""
        submitted: dict[str, Job] = {job.key: job for job in self._ledger.submitted(self._tracker)}
        wanted = {key: grant for key, grant in proposal.content.items() if key in submitted and self._is_served(key)}
        return replace(proposal, content={**wanted, **{key: self._ledger.granted[key] for key in self._held()}})

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
        while (latest := self._ledger.decision) is not self._released:
            try:
                await self._written()
            except PlatformError:
                await asyncio.sleep(RETRY_S)
                continue
            await self._classes_installed()
            self._released = latest
            self.engines.renew()
