"""What hostile input is sent to, by name."""

from collections.abc import Callable, Mapping

from eval.fuzz import agents, http, openflow
from eval.fuzz.findings import Findings

TARGETS: Mapping[str, Callable[[float, int, int | None], Findings]] = {
    "openflow": openflow.run,
    "http": http.run,
    "agents": agents.run,
}
"""Each tries inputs for some seconds, from a seed, or so many of them if that is sooner."""
