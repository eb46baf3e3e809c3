"""What hostile input is sent to, by name."""

from collections.abc import Callable, Mapping

from eval.fuzz import agent_link, agents, attach, client, http, openflow, websocket
from eval.fuzz.findings import Findings

TARGETS: Mapping[str, Callable[[float, int, int | None], Findings]] = {
    "openflow": openflow.run,
    "http": http.run,
    "agents": agents.run,
    "websocket": websocket.run,
    "attach": attach.run,
    "agent-link": agent_link.run,
    "client": client.run,
}
"""Each tries inputs for some seconds, from a seed, or so many of them if that is sooner."""
