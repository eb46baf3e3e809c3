"""Runs jobs as processes on this machine and on others, each under a supervisor per node that outlives the engine.

What is to become of a job is recorded before anything is done (`Record`), and the steps to it are taken by the call that asks,
then by a thread for jobs in transient phases, and by `report`. The successor of an engine that died reads the records and
continues; as long as one lives no other can use its directory.
"""

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from beamer.engines.local.eviction import DeviceMemory, GpuMemory, Resident, eviction
from beamer.engines.local.job import MAX_POLL_S, POLL_S, Busy, LocalJob
from beamer.engines.local.memory_mode import MemoryMode
from beamer.engines.local.monitor import NodeMonitor
from beamer.engines.local.others import Others
from beamer.engines.local.record import Record, last_run, load
from beamer.engines.local.relocation import obstacle, stays_on_nodes
from beamer.engines.local.spare import SpareCapacity
from beamer.engines.local.spec import LaunchSpec, LocalCluster
from beamer.engines.local.states import MemoryPlace, Phase
from beamer.engines.local.supervisor import groups, store
from beamer.engines.local.supervisor.messages import Checkpoint
from beamer.engines.local.supervisor.warm import servers
from beamer.errors import EngineError, InputError, nearest
from beamer.gpu.engine import Engine, Observed, Placement, check_placement
from beamer.gpu.model import Node

log = logging.getLogger("beamer.engines.local")

STEP_S = 5.0
WORKERS = 16


class LocalEngine(Engine):
    """Runs real training processes.

    cluster: where. root: the directory of jobs, which one engine at a time uses. launch: what to run for a job, called when it
    is first started; it raises `LookupError` for one that it does not know. memory: where that of suspended jobs is.
    gpu_memory: of this machine; None: not known, so that `auto` is `gpu`, as it is on other machines. group: how processes are
    frozen, one of `groups.KINDS`. clock: the scheduler's, which reports are on. prepares: as of `Engine`.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        root: Path,
        launch: Callable[[str], LaunchSpec],
        memory: MemoryMode = MemoryMode.AUTO,
        group: str = "auto",
        clock: Callable[[], float] = time.time,
        prepares: bool = False,
        gpu_memory: GpuMemory | None = None,
    ) -> None:
        if group not in groups.KINDS:
            raise InputError("group", group, nearest(group, groups.KINDS))
        self.keeps_memory = memory is not MemoryMode.NONE
        self._memory = memory
        self._gpu_memory = gpu_memory
        for node in cluster.nodes:
            for name, value in (("host_memory", node.host_memory), ("gpu_memory", node.gpu_memory)):
                if value and (gpu_memory is None or not node.launcher.direct):
                    expected = "0, as what processes hold on the node's GPUs is not known here"
                    raise InputError(f"{node.name}.{name}", value, expected)
        self.prepares = prepares
        self._spare = SpareCapacity()
        self._cluster = cluster
        self._root = root.resolve()
        self._launch = launch
        self._group = group
        self._clock = clock
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = store.take(self._root / "lock")
        if self._lock is None:
            raise EngineError(f"another engine uses {self._root}: end it first")
        self._guard = threading.Lock()
        self._nodes = {node.name: Node(node.name, node.gpus, node.cpus) for node in cluster.nodes}
        self._monitor = NodeMonitor(cluster.nodes)
        self._jobs: dict[str, LocalJob] = {}
        self._others = Others(self._jobs, self._cluster)
        for path in sorted(self._root.glob("*/job")):
            if (record := load(path)) is not None:
                self._jobs[record.job] = self._made(record, path.parent)
        self._pool = ThreadPoolExecutor(WORKERS, "beamer-nodes")
        self._refusals: set[str] = set()
        self._closed = False
        self._has_steps = threading.Event()
        self._has_steps.set()
        self._thread = threading.Thread(target=self._take_steps, name="beamer-jobs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the engine, not the jobs; another engine may take them over. Where none runs, its own fork servers end."""
        self._closed = True
        self._has_steps.set()
        self._thread.join()
        self._pool.shutdown()
        self._monitor.close()
        if not any(job.record.phase.is_transient or job.record.phase is Phase.LAUNCHED for job in self._jobs.values()):
            servers.end(self._root / "warm")  # Other engines may use those below the root of a node.
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def nodes(self) -> tuple[Node, ...]:
        """Return the declared nodes that processes can be started on."""
        self._monitor.update()
        return tuple(node for name, node in self._nodes.items() if not self._monitor.problem(name))

    def may_prepare(self, placement: Placement) -> bool:
        """Return whether this machine has a processor and memory to spare; of other ones, whether no job is ahead there."""
        elsewhere = {node for node, _ in placement.devices if not self._cluster.node[node].launcher.direct}
        ahead = [job for job in list(self._jobs.values()) if job.is_ahead]
        if elsewhere:
            return not any(node in elsewhere for job in ahead for node in job.record.ranks)
        return self._spare.suffices(time.monotonic(), sum(not job.suspended for job in ahead))

    def prepare(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        """Launch a job's ranks, to be frozen before they use these GPUs."""
        if not self.prepares:
            return
        left_s = self._check(job, "prepare", placement, timeout_s)
        known = self._jobs.get(job) or self._new(job, placement, held=True)
        with self._locked(known, "prepare", left_s) as (local_job, until):
            if local_job.is_ahead and local_job.record.placement != placement:
                local_job.drop("prepare", until, placement, held=True)
            local_job.refresh("prepare", until)
            if local_job.record.phase is Phase.PARKED:
                local_job.relaunch(placement, held=True)
            local_job.advance("prepare", until, Phase.LAUNCHING)

    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        """Run a job on these GPUs, from its checkpoint if it has one; while memory there makes room for it, that is put off.

        A suspended one is resumed, also on other GPUs of the same chip if its memory is on the host; else it is restarted where
        they differ. A job that runs or has ended is left as it is.
        """
        left_s = self._check(job, "start", placement, timeout_s)
        if not self._has_room(job, placement, left_s):
            return
        with self._locked(self._jobs.get(job) or self._new(job, placement), "start", left_s) as (local_job, until):
            if local_job.is_ahead and local_job.record.placement != placement:
                local_job.drop("start", until, placement)
            local_job.refresh("start", until)
            if local_job.is_ahead:
                local_job.let_go("start", until)
            if local_job.record.phase is Phase.PARKED:
                local_job.relaunch(placement)
            elif local_job.record.phase is Phase.STOPPING:
                local_job.set(next_placement=placement)
            elif local_job.record.phase is Phase.LAUNCHED and local_job.suspended:
                if local_job.record.placement == placement or self._can_move(local_job, placement):
                    local_job.freeze(False, until, placement)
                else:
                    local_job.set(phase=Phase.STOPPING, next_placement=placement)
                    local_job.step(until)
            local_job.advance("start", until, Phase.LAUNCHING)

    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        """Freeze a job's processes on all of its nodes, or park the job where memory is not kept.

        Where it is moved to the host, that is under way: the job is STOPPING until it is there.
        """
        if self._get(job, "suspend").is_ahead:
            return
        if not self.keeps_memory or self._get(job, "suspend").never_offloads:
            self.resize(job, None, timeout_s)
            return
        held = self._measured(self._get(job, "suspend"))
        if self._memory is MemoryMode.HOST and not self._fits_on_host(self._get(job, "suspend"), held):
            self.resize(job, None, timeout_s)
            return
        with self._locked(self._get(job, "suspend"), "suspend", timeout_s) as (local_job, until):
            local_job.offloads = self._memory is MemoryMode.HOST
            local_job.advance("suspend", until, Phase.LAUNCHING, Phase.STOPPING, Phase.KILLING)
            if local_job.record.phase is Phase.LAUNCHED:
                local_job.freeze(True, until)
                local_job.advance("suspend", until, Phase.STOPPING)  # The job may be on its way to be parked by itself.

    def resume(self, job: str, timeout_s: float = 5.0) -> None:
        """Let a suspended job's processes continue; where memory is not kept, run it on the GPUs that it had."""
        if not self._has_room(job, self._get(job, "resume").record.placement, timeout_s):
            return
        with self._locked(self._get(job, "resume"), "resume", timeout_s) as (local_job, until):
            if not self.keeps_memory and local_job.record.phase in (Phase.PARKED, Phase.STOPPING):
                self.start(job, local_job.record.next_placement or local_job.record.placement, timeout_s)
            local_job.advance("resume", until, Phase.LAUNCHING)
            if local_job.is_ahead:
                local_job.let_go("resume", until)
            elif local_job.record.phase is Phase.LAUNCHED:
                local_job.freeze(False, until)
            elif local_job.record.phase is Phase.PARKED:
                raise EngineError(f"{job}: resume: it is parked and its memory gone; start it")

    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        """Stop a job at an iteration boundary and run it from its checkpoint on these GPUs; None: park it.

        It returns when the ranks have been signalled; the rest shows in `report`. A job that has ended is left as it is. One
        whose memory is on the host is not stopped where it can be brought back onto these GPUs, but started there.
        """
        left_s = timeout_s if placement is None else self._check(job, "resize", placement, timeout_s)
        if placement is not None and self._can_move(self._get(job, "resize"), placement):
            self.start(job, placement, left_s)
            return
        with self._locked(self._get(job, "resize"), "resize", left_s) as (local_job, until):
            if local_job.is_ahead and local_job.record.placement != placement:
                local_job.drop("resize", until, placement)
                if local_job.record.phase is Phase.LAUNCHING:
                    local_job.advance("resize", until, Phase.LAUNCHING)
                    return
            local_job.refresh("resize", until)
            if local_job.is_ahead:
                local_job.let_go("resize", until)
                return
            phase = local_job.record.phase
            if phase is Phase.STOPPING:
                local_job.set(next_placement=placement)
            elif phase is Phase.PARKED and placement is not None:
                local_job.relaunch(placement)
                local_job.advance("resize", until, Phase.LAUNCHING)
            elif phase in (Phase.LAUNCHED, Phase.LAUNCHING) and (
                local_job.record.placement != placement or local_job.suspended
            ):
                local_job.set(phase=Phase.STOPPING, next_placement=placement)
                local_job.step(until)

    def checkpoint(self, job: str, timeout_s: float = 5.0) -> None:
        """Have a running job write a checkpoint at its next iteration boundary and continue."""
        with self._locked(self._get(job, "checkpoint"), "checkpoint", timeout_s) as (local_job, until):
            local_job.supervisors.ask_run(Checkpoint(), until)

    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        """Kill what a job still runs and forget it; its checkpoint and what it printed stay."""
        known = self._jobs.get(job)
        if known is None:
            return
        with self._locked(known, "stop", timeout_s) as (local_job, until):
            if local_job.record.phase.is_transient or local_job.record.phase is Phase.LAUNCHED:
                local_job.set(phase=Phase.KILLING, after_kill=Phase.PARKED)  # The job does not continue, whatever happens now.
            local_job.supervisors.end(until)
            local_job.forget()
            with self._guard:
                self._jobs.pop(job, None)

    def report(self) -> Mapping[str, Observed]:
        """Return every job. `exit` names what is lost or does not answer, and the step that fails, too.

        An engine that has taken over the jobs of another delivers all of their reports once more.
        """
        self._monitor.update()
        self._give_memory_back()
        jobs = sorted(self._jobs.items())
        return {job: seen for (job, _), seen in zip(jobs, self._pool.map(self._observe, (one for _, one in jobs)), strict=True)}

    def _observe(self, job: LocalJob) -> Observed:
        try:
            with job.locked("report", MAX_POLL_S):
                return job.observe(self._clock())
        except EngineError:  # What is known holds until the job's supervisors answer, or its record can be written, again.
            return job.observed()
        finally:
            if job.refusal and job.refusal not in self._refusals:
                self._refusals.add(job.refusal)
                log.warning(
                    "suspended trials are saved, and their processes end, where GPU memory cannot be moved: %s", job.refusal
                )
            if job.record.phase.is_transient:
                self._has_steps.set()

    def _give_memory_back(self) -> None:
        """Park one of the jobs that were started ahead, the last that became known, where memory may soon be short."""
        ahead = [job for job in list(self._jobs.values()) if job.is_ahead]
        if ahead and self._spare.is_short_of_memory():
            with suppress(EngineError):  # The next report tries again.
                self.resize(ahead[-1].record.job, None)

    def _check(self, job: str, call: str, placement: Placement, timeout_s: float) -> float:
        """Check that the GPUs are declared, that nothing else is asked for, and that the nodes respond.

        Returns what is left of `timeout_s`.
        """
        until = time.monotonic() + timeout_s
        check_placement(f"{job}: {call}", placement, self._nodes)
        if placement.servers:
            raise EngineError(f"{job}: {call}: the local engine runs no parameter servers, {len(placement.servers)} asked for")
        self._monitor.update(timeout_s)
        for node, _ in placement.devices:
            if problem := self._monitor.problem(node, f"its first check takes longer than {timeout_s:g} s"):
                raise EngineError(f"{job}: {call}: node {node} does not respond: {problem}")
        return until - time.monotonic()

    def _new(self, job: str, placement: Placement, held: bool = False) -> LocalJob:
        """Record a job that is not known yet. held: as of `Record`."""
        try:
            spec = self._launch(job)
        except LookupError as error:
            raise EngineError(f"{job}: there is no such job to be started ({error})") from error
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", job)[-40:] + "-" + hashlib.sha256(job.encode()).hexdigest()[:8]
        directory = self._root / name
        nodes = tuple(dict.fromkeys(node for node, _ in placement.devices))
        with self._guard:
            if job not in self._jobs:
                try:
                    directory.mkdir(mode=0o700, exist_ok=True)
                    last = last_run(directory)
                except (OSError, ValueError) as error:
                    raise EngineError(f"{job}: start: {directory} cannot be used: {error}") from error
                spec = replace(spec, checkpoint=spec.checkpoint or str(directory / "checkpoint"))
                known = self._made(
                    Record(job, spec, placement, nodes, run=last.run + 1, unlaunched=nodes, progress=last.progress, held=held),
                    directory,
                )
                known.set()
                self._jobs[job] = known
            return self._jobs[job]

    def _measured(self, job: LocalJob) -> int:
        """Measure what a job that runs here holds on each of its GPUs at most, in bytes; 0: not known."""
        if self._gpu_memory is not None:
            memory = self._gpu_memory.read()
            found = [self._held(job, node, index, memory) for node, index in job.record.placement.devices]
            job.gpu_bytes = max(found, default=0) or job.gpu_bytes
        return job.gpu_bytes

    def _held(self, job: LocalJob, node: str, index: int, memory: Mapping[str, DeviceMemory]) -> int:
        there = self._cluster.node.get(node)
        if there is None or not there.launcher.direct or (device := memory.get(there.device(index))) is None:
            return 0
        return sum(device.held.get(pid, 0) for pid in job.tree(node))

    def _has_room(self, job: str, placement: Placement, timeout_s: float) -> bool:
        """Return whether a job fits on GPUs beside suspended ones; where it does not, have the memory of some leave them."""
        known = self._jobs.get(job)
        if known and known.record.phase is Phase.LAUNCHED and MemoryPlace.GPU in known.places:
            return True  # It has its memory there already.
        if known and known.record.crowded:
            neighbours = self._others.beside(known, placement)
            for one in neighbours:
                if not one.is_leaving:
                    self._offload(one, timeout_s)
            return not neighbours
        if self._gpu_memory is None or self._memory is not MemoryMode.AUTO:
            return True
        others = [one for name, one in sorted(self._jobs.items()) if name != job]
        needed = (known.gpu_bytes if known else 0) or max((one.gpu_bytes for one in others), default=0)
        memory = self._gpu_memory.read()
        waits, leave = False, dict[str, None]()
        for node, index in placement.devices:
            here = self._cluster.node.get(node)
            device = memory.get(here.device(index)) if here and here.launcher.direct else None
            if device is None:
                continue
            there = [(one, self._held(one, node, index, memory)) for one in others]
            leaving = sum(held for one, held in there if one.record.phase.is_transient or one.is_leaving)
            free = device.free
            if here and here.gpu_memory:
                own = self._held(known, node, index, memory) if known else 0
                free = min(free, here.gpu_memory - own - sum(held for _, held in there))
            residents = [
                Resident(one.record.job, held, one.suspended_s)
                for one, held in there
                if one.record.phase is Phase.LAUNCHED and one.suspended and not one.is_ahead and not one.is_leaving
            ]
            due = eviction(needed, free, leaving, residents)
            waits = waits or due.waits
            leave |= dict.fromkeys(due.leave)
        for name in leave:
            self._offload(self._jobs[name], timeout_s)
        return not waits

    def _can_move(self, job: LocalJob, placement: Placement) -> bool:
        """Return whether a suspended job's memory, which is on the host, can be brought back onto other GPUs of its nodes."""
        is_on_host = job.record.phase is Phase.LAUNCHED and job.suspended and job.places == {MemoryPlace.HOST}
        if not is_on_host or not stays_on_nodes(job.record, placement):
            return False
        memory = self._gpu_memory.read() if self._gpu_memory is not None else {}
        reason = obstacle(job.record, placement, self._cluster, memory)
        if reason and reason not in self._refusals:
            self._refusals.add(reason)
            log.warning("suspended trials start from their checkpoints where other GPUs cannot have their memory: %s", reason)
        return not reason

    def _offload(self, job: LocalJob, timeout_s: float) -> None:
        """Have a suspended job's memory leave its GPUs: for the host, or with its processes where that has no room either."""
        if job.never_offloads or not self._fits_on_host(job, job.gpu_bytes):
            self.resize(job.record.job, None, timeout_s)
            return
        with self._locked(job, "make room", timeout_s) as (local_job, until):
            if local_job.record.phase is Phase.LAUNCHED and local_job.suspended:
                local_job.offloads = True
                local_job.freeze(True, until)

    def _fits_on_host(self, job: LocalJob, held: int) -> bool:
        """Return whether so many bytes of each of a job's GPUs fit into the host memory that its nodes give."""
        for node, ranks in job.record.ranks.items():
            bound = self._cluster.node[node].host_memory if node in self._cluster.node else 0
            there = [one for one in self._jobs.values() if one is not job and node in one.record.ranks]
            moved = [one for one in there if one.places & {MemoryPlace.HOST, MemoryPlace.TO_HOST}]
            taken = sum(one.gpu_bytes * len(one.record.ranks[node]) for one in moved if one.record.phase is Phase.LAUNCHED)
            if bound and (not held or taken + held * len(ranks) > bound):
                return False  # What is not known is taken not to fit.
        return True

    def _made(self, record: Record, directory: Path) -> LocalJob:
        made = LocalJob(record, directory, self._cluster, self._monitor, self._group, self._others)
        made.offloads = made.moves_always = self._memory is MemoryMode.HOST
        return made

    def _get(self, job: str, call: str) -> LocalJob:
        if job not in self._jobs:
            raise EngineError(f"{job}: {call}: no such job has been started")
        return self._jobs[job]

    @contextmanager
    def _locked(self, job: LocalJob, call: str, timeout_s: float) -> Iterator[tuple[LocalJob, float]]:
        """Lock a job for a call; afterwards the thread takes its further steps."""
        try:
            with job.locked(call, timeout_s) as until:
                yield job, until
        finally:
            if job.record.phase.is_transient:
                self._has_steps.set()

    def _take_steps(self) -> None:
        """Take the steps of jobs in transient phases, as long as the engine is open."""
        pause = POLL_S
        while True:
            self._has_steps.clear()  # The event is cleared before the jobs are read, so that later changes set it again.
            if self._closed:
                break
            transient = [job for job in list(self._jobs.values()) if job.record.phase.is_transient]
            if not transient:
                self._has_steps.wait()
                pause = POLL_S
                continue
            before = [job.record for job in transient]
            for job in transient:
                try:
                    with job.locked("advance", 0.0) as now:
                        job.step(now + STEP_S)
                except Busy:
                    continue  # The call that has locked the job takes its steps.
                except Exception as error:  # noqa: BLE001  # The other jobs are to advance, whatever is wrong with this one.
                    job.error = str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
            pause = POLL_S if before != [job.record for job in transient] else min(pause * 1.3, MAX_POLL_S)
            time.sleep(pause)
