"""Ray Tune without Ray: trials that compute a step per turn of the loop, as far as `RayTuneEngine` depends on them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from beamer.engines.ray_tune.engine import RayTuneEngine, Result, TuneDecision, TuneTrials, gpus_by_node
from beamer.gpu.engine import Placement
from beamer.gpu.model import Node

STEP_S = 1.0
"""Seconds that a step takes."""
START_S = 2.0
"""Seconds from a launch to the first step, if the GPUs are free."""


@dataclass
class FakeTrial:
    """A trial.

    loss: by iteration. saves_every: steps after which it can be paused. iteration, saved: steps of the process, and of its
    checkpoint. placement: of the process. ready_s: when it computes, None while it waits for GPUs. leaves: whether its process
    is about to end, as it has been saved. held: whether its process waits. launches: how often it was launched. error: why it
    failed for good.
    """

    loss: Callable[[int], float]
    saves_every: int = 1
    status: str = "PAUSED"
    iteration: int = 0
    saved: int = 0
    placement: Placement | None = None
    ready_s: float | None = None
    leaves: bool = False
    held: bool = False
    launches: int = 0
    error: str = ""


class FakeTune(TuneTrials):
    """Tune's loop on nodes of so many GPUs, in virtual time; `on_result` and `on_loop` are what its scheduler would do.

    on_result: a trial's id and result to the decision. on_loop: once per turn.
    """

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.now = 0.0
        self.trials: dict[str, FakeTrial] = {}
        self.on_result: Callable[[str, Result], TuneDecision] = lambda trial, result: TuneDecision.CONTINUE
        self.on_loop: Callable[[], None] = lambda: None
        self.on_failure: Callable[[str], None] = lambda trial: None
        self._nodes = {node.name: node for node in nodes}

    def drive(self, engine: RayTuneEngine) -> None:
        """Have results and turns of the loop passed to an engine and to nothing else."""

        def answer(trial: str, result: Result) -> TuneDecision:
            engine.record(trial, result, self.now)
            return engine.decide(trial)

        self.on_result, self.on_failure = answer, engine.add
        self.on_loop = lambda: engine.apply(self.now)

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are up."""
        return tuple(self._nodes.values())

    def status(self, trial: str) -> str:
        """Return a trial's status."""
        return self.trials[trial].status

    def error(self, trial: str) -> str:
        """Return what a trial failed of."""
        return self.trials[trial].error

    def has_gpus(self, trial: str) -> bool:
        """Say whether a pending trial has its GPUs."""
        return self.trials[trial].ready_s is not None

    def launch(self, trial: str, placement: Placement) -> None:
        """Let a paused trial wait for GPUs."""
        one = self.trials[trial]
        assert one.status == "PAUSED", one
        one.status, one.placement, one.ready_s = "PENDING", placement, None
        one.launches += 1

    def proceed(self, trial: str) -> None:
        """Let a trial that is held compute."""
        one = self.trials[trial]
        assert one.held, one
        one.held = False

    def pause(self, trial: str) -> None:
        """Pause a trial that is held."""
        one = self.trials[trial]
        assert one.held, one
        one.held, one.saved, one.leaves = False, one.iteration, True

    def withdraw(self, trial: str) -> None:
        """Pause a trial that waits for GPUs."""
        one = self.trials[trial]
        assert one.status == "PENDING", one
        assert one.ready_s is None, one
        self._end(one, "PAUSED")

    def stop(self, trial: str) -> None:
        """End a trial."""
        if self.trials[trial].status != "ERROR":
            self._end(self.trials[trial], "TERMINATED")

    def lose(self, name: str) -> None:
        """Take a node away: its trials fail, and may be launched again."""
        del self._nodes[name]
        for trial, one in self.trials.items():
            if one.placement and name in gpus_by_node(one.placement) and one.ready_s is not None:
                self.fail(trial)

    def join(self, node: Node) -> None:
        """Bring a node up."""
        self._nodes[node.name] = node

    def fail(self, trial: str, error: str = "") -> None:
        """Let a trial's process fail; for good with an error."""
        one = self.trials[trial]
        self._end(one, "ERROR" if error else "PAUSED")
        one.error = error
        if not error:
            self.on_failure(trial)

    def advance(self) -> None:
        """Let a step's time pass: trials compute, saved ones leave, the loop turns, waiting ones get what GPUs are free."""
        self.now += STEP_S
        for trial, one in self.trials.items():
            if one.leaves:
                self._end(one, "PAUSED")
            elif one.ready_s is not None and one.ready_s <= self.now and not one.held:
                one.status = "RUNNING"
                self._compute(trial, one)
        self.on_loop()
        for one in self.trials.values():
            if one.status == "PENDING" and one.ready_s is None and one.placement and self._is_free(one.placement):
                one.iteration = one.saved
                one.ready_s = self.now + START_S

    def _compute(self, trial: str, one: FakeTrial) -> None:
        one.iteration += 1
        saves = one.iteration % one.saves_every == 0
        result = Result(one.iteration, one.loss(one.iteration), STEP_S, one.iteration * STEP_S, None, saves)
        decision = self.on_result(trial, result)
        if decision is TuneDecision.STOP:
            self._end(one, "TERMINATED")
        elif decision is TuneDecision.PAUSE:
            one.saved, one.leaves = one.iteration, True
        elif decision is TuneDecision.HOLD:
            one.held = True

    def _is_free(self, placement: Placement) -> bool:
        used: Counter[str] = Counter()
        for one in self.trials.values():
            if one.placement and one.ready_s is not None:
                used.update(gpus_by_node(one.placement))
        wanted = gpus_by_node(placement)
        return all(node in self._nodes and used[node] + count <= self._nodes[node].gpus for node, count in wanted.items())

    def _end(self, one: FakeTrial, status: str) -> None:
        one.status, one.placement, one.ready_s, one.leaves, one.held = status, None, None, False, False
