"""Which of the connections and jobs that an agent reports are counted: those of workers on the agent's own hosts."""

from collections.abc import Iterable, Iterator

from beamer.network.connection import Connection
from beamer.network.fabric import Fabric
from beamer.studies.tracker import Tracker


class Ownership:
    """Tell an agent's own workers and connections from others, by the fabric and by the attempts that the tracker knows."""

    def __init__(self, fabric: Fabric, tracker: Tracker) -> None:
        self._tracker = tracker
        # The names and the addresses of each agent's hosts.
        self._hosts: dict[str, set[str]] = {agent: set() for agent in fabric.agents}
        self._addresses: dict[str, set[str]] = {agent: set() for agent in fabric.agents}
        for host in fabric.hosts:
            if host.agent is not None:
                self._hosts[host.agent].add(host.name)
                self._addresses[host.agent].update(host.every_address)

    def is_local(self, agent: str, connection: Connection) -> bool:
        """Say whether the worker's end of a connection is a host of the agent."""
        return connection.local_ip in self._addresses[agent]

    def connections(self, agent: str, reported: Iterable[Connection]) -> tuple[Connection, ...]:
        """Return the connections of an agent's own hosts whose worker's trial is known to run that rank there.

        A trial that has ended, moved, or that another journal knew, may still be in a report that was under way.
        """
        ranks: dict[str, frozenset[int]] = {}
        return tuple(c for c in reported if self.is_local(agent, c) and c.rank in self._ranks_of(agent, c.job, ranks))

    def jobs(self, agent: str, reported: Iterable[str]) -> Iterator[str]:
        """Yield the jobs of which an agent has workers."""
        ranks: dict[str, frozenset[int]] = {}
        return (job for job in reported if self._ranks_of(agent, job, ranks))

    def _ranks_of(self, agent: str, job: str, found: dict[str, frozenset[int]]) -> frozenset[int]:
        """Return the ranks of a job's present attempt on an agent's hosts. found: so far, by job."""
        if job not in found:
            trial = self._tracker.trials.get(job)
            workers = trial.attempt.workers if trial is not None and trial.attempt is not None else ()
            found[job] = frozenset(worker.rank for worker in workers if worker.host in self._hosts[agent])
        return found[job]
