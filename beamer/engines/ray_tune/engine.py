"""An engine whose jobs are trials of a Ray Tune search.

Tune calls its scheduler, and not the other way round, so a call of the engine only notes where a job is to run. It takes effect
when Tune next asks: `decide` answers a trial's result, `apply` starts trials that are paused and withdraws starts that wait for
GPUs. A trial leaves its GPUs at its next result, with a checkpoint; no memory is kept. Ray places by node, so the indices of
devices are not used: Ray picks the GPUs of a node. Where the nodes are shared with other searches they are: processes are told
which GPUs to compute on.

The last part of a job's key is the trial's id. A trial that has come to its target and was stopped is held, its process alive,
until it is started again, with a farther one, or discarded; it is paused once another wants its GPUs. One that is discarded is
held as well while trials without a process may yet run: Tune gives its process to the next (`reuse_actors`), which would take
seconds to start another. On nodes that are shared no process waits for longer than `HOLD_S`, as the engine does not hear that
another search wants its GPUs. What the engine asks of Tune is `TuneTrials`, so that Ray is not imported here.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from statistics import median

from beamer.errors import EngineError
from beamer.gpu.engine import Engine, Observed, Placement, RunState, check_placement
from beamer.gpu.model import NOT_MEASURED, Costs, Node, Report, Request, Speed
from beamer.studies.model import Process

STATES: Mapping[str, RunState] = {
    "PENDING": RunState.RUNNING,  # A pending trial waits for GPUs that nobody else is to have.
    "RUNNING": RunState.RUNNING,
    "PAUSED": RunState.PARKED,
    "TERMINATED": RunState.FINISHED,
    "ERROR": RunState.FAILED,
}
"""The state of a trial's job by Tune's status of the trial, as far as the engine has not just asked for another."""

HOLD_S = 1.0  # A process on shared nodes waits so long: a controller decides meanwhile, and a start takes longer.
MIN_COST_CHANGE = 0.2  # The cost of a start is reported anew once it has changed by this share, as each change is journaled.
STARTS = 20  # The cost of a start is the median of so many measured ones, of all trials.
PROCEED_S = 0.01  # A trial whose process waits at the end of its run goes on by a message.


class TuneDecision(StrEnum):
    """What a trial does after a result, as Tune names it."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    HOLD = "NOOP"


@dataclass(frozen=True)
class Result:
    """A trial's result.

    iteration: counted from the trial's beginning. loss: less is better. step_s, total_s: seconds of computing for this result
    and for all of the trial's. resumable: whether a trial that is paused with this result continues without losing a step.
    """

    iteration: float
    loss: float
    step_s: float
    total_s: float
    accuracy: float | None = None
    resumable: bool = True


class TuneTrials(ABC):
    """What the engine asks of Tune; trials by their ids."""

    @abstractmethod
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are up."""

    @abstractmethod
    def status(self, trial: str) -> str:
        """Return Tune's status of a trial, a key of `STATES`."""

    @abstractmethod
    def error(self, trial: str) -> str:
        """Return what a trial failed of, "" if it did not."""

    def processes(self, trial: str) -> Mapping[str, Process] | None:
        """Return a trial's processes, as of `Observed.processes`."""
        return None

    @abstractmethod
    def has_gpus(self, trial: str) -> bool:
        """Say whether a pending trial has been given its GPUs, so that its start cannot be withdrawn any more."""

    @abstractmethod
    def launch(self, trial: str, placement: Placement) -> None:
        """Make a paused trial pending on these nodes."""

    @abstractmethod
    def proceed(self, trial: str) -> None:
        """Have a trial that is held continue."""

    @abstractmethod
    def pause(self, trial: str) -> None:
        """Pause a trial that is held, with a checkpoint."""

    @abstractmethod
    def withdraw(self, trial: str) -> None:
        """Make a pending trial paused again."""

    @abstractmethod
    def stop(self, trial: str) -> None:
        """End a trial that is not between two steps."""


@dataclass
class _Run:
    """A trial.

    job: its key, "" unless it was started and not stopped. wanted: where it is to run. process: where its process was launched,
    None without one. last: where it ran last. at_result: whether Tune waits for the decision after a result; can_leave: whether
    the trial can be paused with it. held: whether it was, so that the process waits, since held_s. is_new: whether no trial
    before had left a process where this one was launched. results: since the launch.
    shapes: whose speed has been reported. costs: reported last.
    """

    job: str = ""
    request: Request = field(default=Request(1))
    finished: bool = False
    wanted: Placement | None = None
    process: Placement | None = None
    last: Placement | None = None
    at_result: bool = False
    can_leave: bool = False
    held: bool = False
    held_s: float = 0.0
    iteration: float = 0.0
    launched_s: float = 0.0
    is_new: bool = True
    results: int = 0
    shapes: set[tuple[int, int, int]] = field(default_factory=set)
    reports: list[Report] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)
    costs: Costs = NOT_MEASURED


class RayTuneEngine(Engine):
    """Run jobs as trials of Tune.

    trials: Tune's. request: of a job that is started; it has finished after the iterations of its request, its present target.
    is_shared: whether other searches have GPUs of the same nodes.
    """

    keeps_memory = False
    stops_at_once = False

    def __init__(self, trials: TuneTrials, request: Callable[[str], Request], is_shared: bool = False) -> None:
        self._tune = trials
        self._request = request
        self._is_shared = is_shared
        self._hold_s = HOLD_S if is_shared else inf
        self._now = 0.0
        self._runs: dict[str, _Run] = {}
        # Each discarded trial has here its waiting process, and since when that waits.
        self._spent: dict[str, tuple[Placement, float]] = {}
        self._launches: Counter[str] = Counter()  # of ranks, by node
        self._starts: dict[bool, list[float]] = {True: [], False: []}  # Those of new processes, and all others.

    # --- the engine, for the GPU scheduler ---

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are up and declare GPUs."""
        return self._tune.nodes()

    def start(self, job: str, placement: Placement, timeout_s: float = 5.0) -> None:
        """Have the job's trial started."""
        self._check(f"{job}: start", placement)
        trial = _trial(job)
        if trial not in self._runs:
            raise EngineError(f"{job}: start: Tune has no such trial")
        run = self._runs[trial]
        if run.job == "":
            run.request = self._request(job)
            run.job, run.finished, run.wanted = job, False, None
        if self._state(trial) in (RunState.PARKED, RunState.STOPPING):
            run.wanted = placement

    def suspend(self, job: str, timeout_s: float = 5.0) -> None:
        """Have the trial paused at its next result."""
        self._place(self._known(job, "suspend"), None)

    def resume(self, job: str, timeout_s: float = 5.0) -> None:
        """Have a trial that is paused, or about to be, run where it ran last."""
        run = self._known(job, "resume")
        if self._state(_trial(job)) in (RunState.PARKED, RunState.STOPPING) and run.last and not run.wanted:
            self._check(f"{job}: resume", run.last)
            run.wanted = run.last

    def resize(self, job: str, placement: Placement | None, timeout_s: float = 5.0) -> None:
        """Have the trial paused at its next result, and started again on the placement if there is one."""
        run = self._known(job, "resize")
        if placement:
            self._check(f"{job}: resize", placement)
        self._place(run, placement)

    def stop(self, job: str, timeout_s: float = 5.0) -> None:
        """Forget a job and have its trial paused at its next result: it may be started again. See `discard`.

        The trial's process holds its GPUs until then, or goes on if the job is started on the same ones.
        """
        run = self._runs.get(_trial(job))
        if run and run.job:
            run.job, run.finished, run.wanted = "", False, None
            run.reports, run.speeds, run.costs = [], [], NOT_MEASURED

    def report(self) -> Mapping[str, Observed]:
        """Return every job that was started and not stopped."""
        observed = {run.job: self._observed(trial, run) for trial, run in self._runs.items() if run.job}
        for run in self._runs.values():
            ended = run.job and observed[run.job].state.is_finished
            run.reports, run.speeds = run.reports[-1:] if ended else [], []
        return observed

    # --- the trials, for Tune's scheduler ---

    @property
    def trials(self) -> Collection[str]:
        """The trials that Tune has not ended."""
        return self._runs.keys()

    def target(self, trial: str) -> float:
        """Return the iterations of a trial's present target, infinite where it has none."""
        run = self._runs.get(trial)
        return run.request.iterations if run and run.job else inf

    def add(self, trial: str) -> None:
        """Take in a trial, which is paused; one that is known has failed and is paused again."""
        run = self._runs.setdefault(trial, _Run())
        run.wanted = run.process = None
        run.held = False
        self._spent.pop(trial, None)

    def forget(self, trial: str) -> None:
        """Take in that Tune has ended a trial."""
        self._runs.pop(trial, None)
        self._spent.pop(trial, None)

    def discard(self, trial: str) -> None:
        """End a trial, now or as the decision after its result, or once nobody needs its process."""
        run = self._runs.pop(trial)
        if run.process and (run.at_result or run.held) and self._are_without_process():
            self._spent[trial] = run.process, self._now
        elif not run.at_result:
            self._tune.stop(trial)

    def record(self, trial: str, result: Result, now: float) -> None:
        """Take in a trial's result, which Tune waits for the decision after."""
        self._now = now
        run = self._runs[trial]
        run.at_result, run.can_leave = True, result.resumable
        steps = result.iteration - run.iteration  # The difference is below 1 after a return to a checkpoint.
        run.iteration = result.iteration
        if run.process and run.results == 0:
            starts = self._starts[run.is_new]
            starts[:] = [*starts, max(now - run.launched_s - result.step_s, 0.0)][-STARTS:]
        if run.job and not run.finished:
            run.reports.append(Report(now, result.iteration, result.loss, result.total_s, result.accuracy))
            if run.process and steps > 0:
                self._measure(run, run.process, result.step_s / steps)
            if result.iteration >= run.request.iterations:
                run.finished, run.wanted, run.last = True, None, run.process
        run.results += 1

    def decide(self, trial: str) -> TuneDecision:
        """Return what a trial does after the result that was recorded."""
        run = self._runs.get(trial)
        if run is None:
            return TuneDecision.HOLD if trial in self._spent else TuneDecision.STOP
        leaves = run.can_leave and not self._same(run.wanted, run.process)
        run.at_result = run.can_leave = False
        if not leaves:
            return TuneDecision.CONTINUE
        # Another process takes seconds to start, and a trial that waits for a verdict may soon be wanted again.
        run.held = not run.job and run.process is not None and not self._are_claimed(run.process)
        if run.held:
            run.held_s = self._now
            return TuneDecision.HOLD
        run.process = None
        return TuneDecision.PAUSE

    def apply(self, now: float) -> None:
        """Withdraw starts that are not wanted any more, launch trials that are paused and wanted, and release held ones."""
        self._now = now
        for trial, run in self._runs.items():
            if run.process and not self._same(run.wanted, run.process) and self._is_withdrawable(trial):
                self._tune.withdraw(trial)
                run.process = None
            if self._tune.status(trial) == "PAUSED" and run.wanted:
                run.process, run.launched_s, run.results = run.wanted, now, 0
                run.is_new = self._needs_processes(run.wanted)
                self._tune.launch(trial, run.wanted)
        # Processes end after the launches, so that launched trials find them.
        for trial, (process, since_s) in list(self._spent.items()):
            if self._are_claimed(process) or not self._are_without_process() or now > since_s + self._hold_s:
                del self._spent[trial]
                self._tune.stop(trial)
        for trial, run in self._runs.items():
            if run.held and self._same(run.wanted, run.process):
                run.held = False
                self._tune.proceed(trial)
            elif run.held and run.process and (run.wanted or self._are_claimed(run.process) or now > run.held_s + self._hold_s):
                run.held, run.process = False, None
                self._tune.pause(trial)

    def _needs_processes(self, placement: Placement) -> bool:
        """Take in a launch, and return whether there have been fewer on its nodes than these have GPUs."""
        gpus = {node.name: node.gpus for node in self.nodes()}
        asked = gpus_by_node(placement)
        self._launches.update(asked)
        return any(self._launches[node] <= gpus.get(node, 0) for node in asked)

    def _are_claimed(self, process: Placement) -> bool:
        """Say whether others want the GPUs of a process that waits: whether more are wanted there than there are."""
        taken: Counter[Hashable] = Counter()
        waiting = (process for process, _ in self._spent.values())
        for placement in (*waiting, *(run.process or run.wanted for run in self._runs.values())):
            if placement:
                taken.update(self._parts(placement))
        nodes = self.nodes()
        gpus: Mapping[Hashable, int] = {node.name: node.gpus for node in nodes}
        if self._is_shared:
            gpus = {(node.name, index): 1 for node in nodes for index in range(node.gpus)}
        return any(taken[part] > gpus.get(part, 0) for part in self._parts(process))

    def _parts(self, placement: Placement) -> Mapping[Hashable, int]:
        """Return how many GPUs a placement has of what is told apart: of each node, or where they are shared of each GPU."""
        return Counter(placement.devices) if self._is_shared else Counter(node for node, _ in placement.devices)

    def _same(self, one: Placement | None, other: Placement | None) -> bool:
        """Say whether two placements are the same to Ray."""
        if one is None or other is None:
            return one is other
        return (self._parts(one), one.batch_size) == (self._parts(other), other.batch_size)

    def _are_without_process(self) -> bool:
        """Say whether there are trials that will need a process if they run."""
        return any(run.process is None for run in self._runs.values())

    # --- states ---

    def _state(self, trial: str) -> RunState:
        """Return the state of a trial's job."""
        run = self._runs[trial]
        state = STATES[self._tune.status(trial)]
        if state.is_finished:
            return state
        if run.finished:
            return RunState.FINISHED
        bound = run.process and state is RunState.RUNNING and not (run.at_result and run.can_leave)
        if bound and not self._same(run.wanted, run.process) and not self._is_withdrawable(trial):
            return RunState.STOPPING
        return RunState.RUNNING if run.wanted else RunState.PARKED

    def _observed(self, trial: str, run: _Run) -> Observed:
        state = self._state(trial)
        placement = {RunState.RUNNING: run.wanted, RunState.STOPPING: run.process}.get(state)
        exit_ = self._tune.error(trial) if state is RunState.FAILED else ""
        target = run.request.iterations
        reports, speeds, processes = tuple(run.reports), tuple(run.speeds), self._tune.processes(trial)
        return Observed(state, placement, reports, speeds, self._new_costs(run), exit_, target, processes=processes)

    def _place(self, run: _Run, placement: Placement | None) -> None:
        if not self._state(_trial(run.job)).is_finished:
            run.last = run.wanted or run.last
            run.wanted = placement

    def _is_withdrawable(self, trial: str) -> bool:
        """Say whether a trial waits for GPUs. Once it has them it runs for a step, so that no start is for nothing."""
        return self._tune.status(trial) == "PENDING" and not self._tune.has_gpus(trial)

    def _measure(self, run: _Run, placement: Placement, iteration_s: float) -> None:
        """Note the speed. The first result after a launch includes its set-up, so it counts only where nothing is known."""
        gpus, batch = gpus_by_node(placement), placement.batch_size or run.request.batch_size
        shape = (sum(gpus.values()), len(gpus), batch)
        if run.results or shape not in run.shapes:
            run.shapes.add(shape)
            run.speeds.append(Speed(shape[0], shape[1], 0, batch, iteration_s * batch / run.request.batch_size))

    def _new_costs(self, run: _Run) -> Costs | None:
        """Return what changes take, None where that is as reported before.

        A start is that of all trials: of those that may take over another one's process (`reuse_actors`), once such a one has
        been measured. A trial that has come to its target, and whose process waits, needs none.
        """
        starts = self._starts[False] or self._starts[True]
        if not starts:
            return None
        start_s = median(starts)
        known_s = run.costs.restart_s
        if abs(start_s - known_s) <= MIN_COST_CHANGE * known_s:
            start_s = known_s
        costs = Costs(resume_s=PROCEED_S if run.finished and run.process else start_s, restart_s=start_s)
        if costs == run.costs:
            return None
        run.costs = costs
        return costs

    def _known(self, job: str, call: str) -> _Run:
        run = self._runs.get(_trial(job))
        if run is None or not run.job:
            raise EngineError(f"{job}: {call}: no such job has been started")
        return run

    def _check(self, call: str, placement: Placement) -> None:
        check_placement(call, placement, {node.name: node for node in self.nodes()})


def gpus_by_node(placement: Placement) -> dict[str, int]:
    """Return how many GPUs a placement has on each node."""
    return dict(Counter(node for node, _ in placement.devices))


def _trial(job: str) -> str:
    return job.rpartition("/")[2]
