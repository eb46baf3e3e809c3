"""Where every node of a network sends what is for a host: along shortest paths, and around dead cables.

Several equal paths are told apart by a plane: plane `p` takes the `p`-th next hop at every node, modulo their number. Where a
cable is dead, a plane keeps every next hop from which a shortest path still leads on, and only the others give way, so that
what does not meet the dead cable stays where it is.
"""

from collections.abc import Collection, Iterable

import networkx as nx

Cable = tuple[str, str]
"""A cable's ends, in either order."""


class NextHops:
    """The next hops of a network.

    cables: all there are. hosts: the nodes that nothing passes through.
    """

    def __init__(self, cables: Iterable[Cable], hosts: Collection[str]) -> None:
        self._graph: nx.Graph[str] = nx.Graph(cables)
        self._hosts = hosts
        self._intact: NextHops | None = None  # The same network without dead cables, where it has some.
        self._towards: dict[str, dict[str, tuple[str, ...]]] = {}  # The choices of every node, by destination.
        self._latest: tuple[frozenset[Cable], NextHops] | None = None  # What was asked for around dead cables last.

    def around(self, dead: Collection[Cable]) -> "NextHops":
        """Return the next hops where these cables and no others are dead."""
        intact, cables = self._intact or self, frozenset(dead)
        if not cables:
            return intact
        if intact._latest is not None and intact._latest[0] == cables:
            return intact._latest[1]
        found = NextHops(intact._graph.edges, self._hosts)
        found._graph.remove_edges_from(cables)
        found._intact = intact
        intact._latest = cables, found
        return found

    def parts(self) -> list[set[str]]:
        """Return the nodes that have paths to each other, largest part first."""
        return sorted(nx.connected_components(self._graph), key=len, reverse=True)

    def choices(self, destinations: Iterable[str]) -> int:
        """Return the most next hops that a node has towards one of some hosts, at least 1."""
        return max((len(found) for host in destinations for found in self._choices(host).values()), default=1)

    def lead_over(self, cables: Collection[Cable], destination: str) -> bool:
        """Return whether a shortest path to a host leads over one of some cables."""
        choices = self._choices(destination)
        return any(b in choices.get(a, ()) or a in choices.get(b, ()) for a, b in cables)

    def of(self, node: str, destination: str, plane: int) -> str | None:
        """Return the neighbour to which a node sends what is for a host on a plane, None where no path leads there."""
        choices = self._choices(destination).get(node, ())
        if not choices:
            return None
        if self._intact is not None:
            intact = self._intact.of(node, destination, plane)
            if intact in choices:
                return intact
        return choices[plane % len(choices)]

    def distance(self, node: str, destination: str) -> int:
        """Return how many cables lead from a node to a host, 0 where none do."""
        length = 0
        while (onward := self.of(node, destination, 0)) is not None:
            node, length = onward, length + 1
        return length

    def _choices(self, destination: str) -> dict[str, tuple[str, ...]]:
        """Return every node's neighbours on a shortest path to a host, sorted; of nodes that none leads from, nothing."""
        if destination not in self._towards:
            self._towards[destination] = self._found(destination)
        return self._towards[destination]

    def _found(self, destination: str) -> dict[str, tuple[str, ...]]:
        if destination not in self._graph:
            return {}
        distance = nx.single_source_shortest_path_length(self._graph, destination)
        return {
            node: tuple(
                sorted(
                    other
                    for other in self._graph[node]
                    if distance[other] == length - 1 and (other == destination or other not in self._hosts)
                )
            )
            for node, length in distance.items()
            if length > 0
        }
