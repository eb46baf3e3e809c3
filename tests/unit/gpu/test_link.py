"""What an engine's link has reported: not what is the controller's own or the search's alone."""

from beamer.gpu.events import Allocated, NodesSeen, TrialSampled
from beamer.gpu.link import EngineLink
from beamer.gpu.model import Node

NODES = (Node("n", 1),)


def test_decisions_and_draws_are_not_reported() -> None:
    link = EngineLink("http://127.0.0.1:9", "s", "r", NODES, {})
    link.offer(Allocated(0.0, "fifo", 1, None, {}, {}))
    link.offer(TrialSampled(0.0, "s", "trial-0", 0, {"lr": "0.1"}))
    assert link.flush(0.0), "nothing is to be confirmed"
    link.offer(NodesSeen(0.0, NODES))
    assert not link.flush(0.0)
