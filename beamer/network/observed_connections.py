"""What host agents see of the connections of trials that run, by agent and by trial: a change costs what it changes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from operator import attrgetter
from types import MappingProxyType

from beamer.network.connection import Connection

Connections = tuple[Connection, ...]
"""In order; the same object for as long as they are the same."""

_ORDER = attrgetter(*(field.name for field in fields(Connection)))
_NONE: Mapping[str, Connections] = MappingProxyType({})


def by_job(connections: Iterable[Connection], runs: Callable[[str], bool]) -> dict[str, Connections]:
    """Return connections by job, of those jobs that run: an agent may not know yet that another does not any more."""
    found: defaultdict[str, set[Connection]] = defaultdict(set)
    for connection in connections:
        found[connection.job].add(connection)
    return {job: tuple(sorted(found[job], key=_ORDER)) for job in sorted(found) if runs(job)}


@dataclass
class ObservedConnections:
    """Know what each agent sees of each job; an agent or a job of which nothing is seen is not there."""

    _by_agent: dict[str, dict[str, Connections]] = field(default_factory=dict)
    _by_job: dict[str, dict[str, Connections]] = field(default_factory=dict, compare=False, repr=False)

    def of_agent(self, agent: str) -> Mapping[str, Connections]:
        """Return what an agent sees, by job."""
        return self._by_agent.get(agent, _NONE)

    def all_of_agent(self, agent: str) -> Connections:
        """Return all that an agent sees, in order."""
        seen = self.of_agent(agent)
        return tuple(chain.from_iterable(seen[job] for job in sorted(seen)))

    def of_job(self, job: str) -> Mapping[str, Connections]:
        """Return what is seen of a job, by agent."""
        return self._by_job.get(job, _NONE)

    def everything(self) -> dict[str, Connections]:
        """Return what each agent sees, in order."""
        return {agent: self.all_of_agent(agent) for agent in self._by_agent}

    def replace(self, agent: str, seen: Mapping[str, Connections]) -> None:
        """Take in what an agent sees now, by job."""
        before = self._by_agent.pop(agent, {})
        for job in before.keys() - seen.keys():
            self._drop(agent, job)
        if seen:
            self._by_agent[agent] = {job: before[job] if before.get(job) == new else new for job, new in seen.items()}
        for job, kept in self._by_agent.get(agent, _NONE).items():
            self._by_job.setdefault(job, {})[agent] = kept

    def forget(self, job: str) -> None:
        """Take in that a job does not run any more."""
        for agent in self._by_job.pop(job, ()):
            of_agent = self._by_agent[agent]
            del of_agent[job]
            if not of_agent:
                del self._by_agent[agent]

    def _drop(self, agent: str, job: str) -> None:
        of_job = self._by_job[job]
        del of_job[agent]
        if not of_job:
            del self._by_job[job]
