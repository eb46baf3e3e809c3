"""A job's supervisors, as its engine asks them: one on a node, those of its run, or all that it may have."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from beamer.engines.local.client import SupervisorClient
from beamer.engines.local.monitor import NodeMonitor
from beamer.engines.local.record import Record
from beamer.engines.local.spec import LocalCluster
from beamer.engines.local.supervisor.control import Unreachable
from beamer.engines.local.supervisor.messages import (
    End,
    GetStatus,
    Refused,
    Status,
    SupervisorAnswer,
    SupervisorRequest,
    kind_of,
)
from beamer.errors import EngineError

NEVER = 1 << 60
"""Reports that are known already where none are wanted."""
MIN_TIMEOUT_S = 0.05
"""Of a request, however little of its caller's time is left."""

AnswerT = TypeVar("AnswerT", bound=SupervisorAnswer)


@dataclass(frozen=True)
class Supervisors:
    """Asks the supervisors of a job.

    record: returns what is known of the job now. directory: the job's. monitor: of nodes. group: the kind of process group of
    those that are started. first_version: as of `SupervisorClient`. until, in every method: when the caller's time is over,
    monotonic time.
    """

    record: Callable[[], Record]
    directory: Path
    cluster: LocalCluster
    monitor: NodeMonitor
    group: str
    first_version: set[str] = field(default_factory=set)

    def ask(self, node: str, request: SupervisorRequest, until: float) -> SupervisorAnswer:
        """Return a supervisor's answer. Raises `EngineError` if there is none or it refuses."""
        left = left_s(until)
        where = f"{self.record().job}: {kind_of(request)} on {node}"
        if node not in self.cluster.node:
            raise EngineError(f"{where}: the node is no longer declared, the job may still run there")
        there = self.cluster.node[node]
        if not there.launcher.direct and (problem := self.monitor.problem(node)):
            raise EngineError(f"{where}: {problem}")
        try:
            answer = SupervisorClient(there, self.directory, self.group, self.first_version).ask(request, left)
        except Unreachable as error:
            raise EngineError(f"{where}: {error}") from error
        if isinstance(answer, Refused):
            raise EngineError(f"{where}: refused: {answer.reason}")
        return answer

    def ask_all(self, requests: Mapping[str, SupervisorRequest], until: float) -> dict[str, SupervisorAnswer]:
        """Return the answers of supervisors, by node; all are asked, at the same time, whatever one of them answers."""
        if len(requests) == 1:
            return {node: self.ask(node, request, until) for node, request in requests.items()}
        with ThreadPoolExecutor(max(len(requests), 1)) as pool:
            waiting = {node: pool.submit(self.ask, node, request, until) for node, request in requests.items()}
        return {node: future.result() for node, future in waiting.items()}

    def ask_run(self, request: SupervisorRequest, until: float) -> None:
        """Ask the same of all supervisors of the run."""
        self.ask_all(dict.fromkeys(self.record().ranks, request), until)

    def end(self, until: float) -> None:
        """End the job's supervisors and what still runs under them; each forgets the job.

        Raises `EngineError` where one does not answer, save on nodes that no launch has been sent to.
        """
        record = self.record()
        end = End(forget=True, run=record.run)
        self.ask_all({node: end for node in record.nodes if node not in record.unlaunched}, until)
        for node in record.nodes:
            if node in record.unlaunched:
                with suppress(EngineError):
                    self.ask(node, end, until)

    def status(self, node: str, until: float, after: int = NEVER) -> Status:
        """Return a supervisor's status with the reports that come after so many."""
        return self.expect(Status, node, self.ask(node, GetStatus(after), until))

    def statuses(self, until: float) -> dict[str, Status]:
        """Return the statuses of the run's supervisors without reports."""
        answers = self.ask_all(dict.fromkeys(self.record().ranks, GetStatus(NEVER)), until)
        return {node: self.expect(Status, node, answer) for node, answer in answers.items()}

    def expect(self, kind: type[AnswerT], node: str, answer: SupervisorAnswer) -> AnswerT:
        """Return an answer of this kind. Raises `EngineError` for another."""
        if not isinstance(answer, kind):
            raise EngineError(f"{self.record().job}: {node} answered {kind_of(answer)}, expected {kind.__name__}")
        return answer


def left_s(until: float) -> float:
    """Return the time that is left of a caller's, at least so much that a request can be made."""
    return max(until - time.monotonic(), MIN_TIMEOUT_S)
