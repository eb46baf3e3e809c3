"""The order in which decisions reach switches and agents."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from beamer.network.protocol import Assignment
from controller.network import delivery as module
from controller.network.delivery import Delivery
from controller.network.installation import Installation
from controller.network.targets import Targets
from controller.openflow.reports import PairCount, SwitchConnected, SwitchEvent
from controller.openflow.rules import JobRules
from controller.openflow.terms import Terms

WAIT_S = 0.2


class SilentSwitches:
    """One switch that is connected and acknowledges nothing."""

    def lead(self, on_event: Callable[[SwitchEvent], None], terms: Terms) -> None:
        on_event(SwitchConnected("s1"))

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def install(self, generation: int, jobs: Sequence[JobRules]) -> None:
        pass

    async def counters(self) -> tuple[PairCount, ...]:
        return ()


class NoJournal:
    """Everything is durable at once."""

    def then(self, action: Callable[[], None]) -> None:
        action()


class Agents:
    def __init__(self) -> None:
        self.sent: list[int] = []

    def send(self, agent: str, assignment: Assignment) -> None:
        self.sent.append(assignment.generation)


def test_a_silent_switch_holds_agents_up_for_a_time_however_often_something_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWITCH_WAIT_S", WAIT_S)

    def targets(generation: int) -> Targets:
        return Targets((), {"h1": Assignment(generation=0, addresses=(f"10.0.0.{generation}",))})

    async def play() -> None:
        agents, installation = Agents(), Installation(["s1"], ["h1"], 1)
        delivery = Delivery(installation, targets(1), agents, SilentSwitches(), NoJournal(), lambda: 0.0)
        await delivery.start()
        for generation in range(2, 42):
            delivery.want(generation, targets(generation), ())
            await asyncio.sleep(WAIT_S / 10)
        assert agents.sent
        assert len(delivery._pending) < 40
        await delivery.stop()

    asyncio.run(play())
