"""What a survey makes of the answers of hosts."""

from collections.abc import Iterator

import pytest

from controller.event_loop.time_slices import TimeSlices
from controller.openflow.frames import PacketIn
from controller.openflow.probes import host_answer, host_probe
from controller.openflow.survey import LOST, Survey
from tests.support.surveyed_network import FABRIC, HOSTS, Site, answer, hasten, run, settled


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def test_what_a_host_is_sent_is_no_probe_of_another_port() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        at_host, of_trunk = site.survey._probes["l1", 3][0], site.survey._probes["l1", 1][0]
        secret = next(word for word in of_trunk.split() if len(word) >= 32)
        assert secret not in at_host
        before = site.survey.observation()
        site.survey.take("l1", PacketIn(0, 3, at_host))
        assert site.survey.observation().leads_to == {**before.leads_to, ("l1", 3): ("l1", 3)}

    run(scenario)


def test_swapped_hosts_are_found_by_asking_for_others() -> None:
    async def scenario(site: Site) -> None:
        one, other = site.wires.hosts.values()
        site.wires.hosts = {HOSTS["h1"]: other, HOSTS["h2"]: one}
        await site.join()
        await site.rounds(2)
        assert site.texts() == ["at l1 port 3 is h2; the file says h1", "at l2 port 3 is h1; the file says h2"]
        await site.rounds(LOST)
        changes = site.wires.changes
        await site.rounds(3 * LOST)
        assert site.texts() == ["at l1 port 3 is h2; the file says h1", "at l2 port 3 is h1; the file says h2"]
        assert site.wires.changes == changes
        site.wires.hosts = {HOSTS["h1"]: one, HOSTS["h2"]: other}
        await site.rounds()
        assert site.texts() == []

    run(scenario)


def test_a_host_that_falls_silent_is_named() -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        del site.wires.hosts[HOSTS["h2"]]
        await site.rounds(LOST - 1)
        assert site.texts() == []
        await site.rounds()
        assert site.texts() == ["h2 (10.77.0.2) does not answer at l2 port 3"]

    run(scenario)


def forged() -> Iterator[tuple[str, bytes]]:
    other = Survey(FABRIC, TimeSlices(), lambda: None, settled)
    yield "another controller's probe", other._probes["l1", 1][0]
    yield "nothing", b""
    yield "half an answer", answer("10.77.0.1", "02:00:00:00:00:01")[:30]
    yield "an address that no host has", answer("10.99.0.1", "02:00:00:00:00:01")
    yield "a request", host_probe("10.77.0.1")


@pytest.mark.parametrize(("what", "frame"), tuple(forged()), ids=lambda one: one if isinstance(one, str) else "")
def test_what_is_no_answer_to_a_probe_changes_nothing(what: str, frame: bytes) -> None:
    async def scenario(site: Site) -> None:
        await site.join()
        await site.rounds()
        before, changes = site.survey.observation(), site.wires.changes
        site.survey.take("s2", PacketIn(0, 2, frame))
        site.survey.take("nobody", PacketIn(0, 2, frame))
        assert (site.survey.observation(), site.wires.changes) == (before, changes)

    run(scenario)


def test_an_answer_is_read_with_its_addresses() -> None:
    assert host_answer(answer("10.77.0.1", "02:00:00:00:00:01")) == ("10.77.0.1", "02:00:00:00:00:01")
    assert host_answer(answer("10.77.0.1", "02:00:00:00:00:01")[:41]) is None
