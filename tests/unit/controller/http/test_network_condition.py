"""What the API, the metrics and the commands say of a network that is not as its file says."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import httpx
import pytest

import beamer.cli
from beamer.network.fabric import Fabric
from beamer.network.observed_fabric import Mismatch
from beamer.network.policies import network_policy
from beamer.network.protocol import Applied
from beamer.studies.events import AttemptStarted, StudyRegistered, TargetSet, TrialRegistered
from beamer.studies.journal.store import Journal
from beamer.studies.model import Profile, Worker
from beamer.testing.fabrics import two_spines
from controller.http.api import create_app
from controller.http.responses import health_response
from controller.openflow.reports import NetworkSeen
from controller.settings import ControllerSettings
from tests.support.commands import run_here
from tests.support.served_controller import Served, SwitchesInMemory, made_runtime, served

FABRIC = two_spines(1)
ALL = frozenset(FABRIC.switch)
TEXT = "l1 port 1 leads to s2 port 1; the file says s1 port 1"
ODD = "l1 port 1 could carry 10gbit, and carries the 1gbit of the file"
WRONG = NetworkSeen((Mismatch("wrong cable", "l1", 1, TEXT),), frozenset({("l1", "s1")}), ALL, (ODD,))


def test_what_does_not_fit_is_not_installed_and_is_named(tmp_path: Path) -> None:
    async def play() -> None:
        switches = SwitchesInMemory([switch.name for switch in FABRIC.switches])
        settings = ControllerSettings(bare(FABRIC), network_policy("fifo"))
        runtime = made_runtime(settings, Journal(f"sqlite:///{tmp_path / 'journal.db'}"), switches)
        await runtime.start()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(runtime)), base_url="http://beamer") as client:
            health = (await client.get("/v1/health")).json()
            none = {"unseen": sorted(ALL), "unread_queues": [], "not_applied": {}}
            nothing = {"mismatches": [], "remarks": [], "dead_cables": [], "cut_off": [], **none}
            assert (health["installed_everywhere"], health["network"]) == (True, nothing)
            switches.see(WRONG)
            health = (await client.get("/v1/health")).json()
            assert not health["installed_everywhere"]
            assert not (await client.get("/v1/plan")).json()["installed_everywhere"]
            found = {"mismatches": [TEXT], "remarks": [ODD], "dead_cables": [["l1", "s1"]], "cut_off": [], "unseen": []}
            assert health["network"] == {**found, "unread_queues": [], "not_applied": {}}
            metrics = (await client.get("/metrics")).text
            assert 'beamer_network_mismatches{kind="wrong cable"} 1.0' in metrics
            assert 'beamer_network_mismatches{kind="no link"} 0.0' in metrics
            assert "beamer_hosts_cut_off 0.0" in metrics
            switches.see(NetworkSeen((), frozenset({("l1", "s1"), ("l1", "s2")}), ALL))
            assert (await client.get("/v1/health")).json()["network"]["cut_off"] in (["h1"], ["h2"])
            assert "beamer_hosts_cut_off 1.0" in (await client.get("/metrics")).text
            switches.see(NetworkSeen(unread=frozenset({"l1"})))
            health = (await client.get("/v1/health")).json()
            assert (health["installed_everywhere"], health["network"]["unread_queues"]) == (False, ["l1"])
            assert "beamer_switches_queues_not_known 1.0" in (await client.get("/metrics")).text
            switches.see(NetworkSeen(remarks=(ODD,)))
            assert (await client.get("/v1/health")).json()["installed_everywhere"]
        await runtime.stop()

    asyncio.run(play())


def test_an_agent_that_says_that_it_cannot_apply_what_it_had_is_not_installed(tmp_path: Path) -> None:
    async def play() -> None:
        switches = SwitchesInMemory([switch.name for switch in FABRIC.switches])
        settings = ControllerSettings(FABRIC, network_policy("fifo"))
        runtime = made_runtime(settings, Journal(f"sqlite:///{tmp_path / 'journal.db'}"), switches)
        await runtime.start()

        generation = {agent: runtime.agent_joined(agent).generation for agent in ("h1", "h2")}

        def answer(agent: str, error: str | None = None) -> None:
            runtime.on_agent_message(agent, Applied(generation=generation[agent], changes=0, error=error))

        for agent in generation:
            answer(agent)
        assert runtime.installation.everywhere
        answer("h2", "data: tbf 8001:")
        assert not runtime.installation.everywhere
        assert runtime.installation.agents["h2"] == 0
        assert health_response(runtime)["network"]["not_applied"] == {"h2": "data: tbf 8001:"}
        answer("h2")
        assert runtime.installation.everywhere
        assert health_response(runtime)["network"]["not_applied"] == {}
        for ending in (runtime.agent_lost, runtime.agent_joined):
            answer("h2", "data: tbf 8001:")
            ending("h2")
            assert runtime.not_applied == {}, "of an agent that is gone, or has just come, nothing is known"
        await runtime.stop()

    asyncio.run(play())


def bare(fabric: Fabric) -> Fabric:
    """Return a fabric without agents."""
    return Fabric.from_dict({**fabric.to_dict(), "hosts": [{**vars(host), "agent": None} for host in fabric.hosts]})


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Served]:
    with served(bare(FABRIC), tmp_path / "journal.db") as started:
        yield started


def see(controller: Served, seen: NetworkSeen) -> None:
    controller.ask(lambda runtime: runtime.condition.take_in(seen))


def asked(controller: Served, *arguments: str) -> "CompletedProcess[str]":
    return run_here(beamer.cli.main, *arguments, env={"BEAMER_URL": controller.url, "COLUMNS": "200"})


def test_fabric_check_and_status_name_what_differs(controller: Served) -> None:
    see(controller, NetworkSeen(switches=ALL))
    done = asked(controller, "fabric", "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "what 4 switches and their hosts show is as the network's file says\n"
    see(controller, NetworkSeen(switches=ALL, remarks=(ODD,)))
    but = "what 4 switches and their hosts show is as the network's file says but for the remarks"
    assert asked(controller, "fabric", "check").stdout == f"remark: {ODD}\n{but}\n"
    see(controller, WRONG)
    done = asked(controller, "fabric", "check")
    told = f"{TEXT}\nremark: {ODD}\ndead, and not used where there is another path: l1-s1\n"
    assert (done.returncode, done.stdout) == (1, told)
    document = json.loads(asked(controller, "fabric", "check", "--json").stdout)
    assert (document["switches"], document["mismatches"], document["dead_cables"]) == (4, [TEXT], [["l1", "s1"]])
    status = asked(controller, "status")
    assert status.returncode == 1
    assert TEXT in status.stdout
    see(controller, NetworkSeen(switches=ALL))
    why = "eth2 is a member of bond0, a bond (802.3ad) of eth1, eth2: name bond0 in the network's file"
    controller.ask(lambda runtime: runtime.not_applied.update(h1=why))
    done = asked(controller, "fabric", "check")
    assert (done.returncode, done.stdout) == (1, f"agent h1 has not applied what it is assigned: {why}\n")
    assert why in asked(controller, "status").stdout
    controller.ask(lambda runtime: runtime.not_applied.clear())
    see(controller, NetworkSeen((), frozenset({("l1", "s1"), ("l1", "s2")}), ALL - {"s2"}))
    done = asked(controller, "fabric", "check")
    assert done.returncode == 1
    why = "not connected, see beamer status, or without a description of its ports, see the controller's log"
    assert done.stdout.splitlines() == [
        f"nothing is seen of s2: {why}",
        "dead, and not used where there is another path: l1-s1, l1-s2",
        f"no path leads to {controller.ask(lambda runtime: runtime.condition.cut_off)[0]}",
    ]
    assert "no path leads to" in asked(controller, "status").stdout
    see(controller, NetworkSeen(switches=ALL, unread=frozenset({"l1"})))
    unread = "the queues of l1 are not known: not read back, or not seen in use"
    done = asked(controller, "fabric", "check")
    assert (done.returncode, done.stdout) == (1, f"{unread}\n")
    assert unread in asked(controller, "status").stdout


def test_fabric_check_needs_a_controller_that_looks() -> None:
    done = run_here(beamer.cli.main, "fabric", "check", "--url", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert "no controller leads at http://127.0.0.1:9" in done.stderr


def test_jobs_are_ordered_by_the_links_that_they_really_use(tmp_path: Path) -> None:
    workers = Worker(0, "h1"), Worker(1, "h2")

    async def play() -> None:
        switches = SwitchesInMemory([switch.name for switch in FABRIC.switches])
        settings = ControllerSettings(FABRIC, network_policy("fifo"))
        runtime = made_runtime(settings, Journal(f"sqlite:///{tmp_path / 'journal.db'}"), switches)
        await runtime.start()
        now = runtime.clock()
        for event in (
            StudyRegistered(now, "s"),
            TrialRegistered(now, "s", "t"),
            TargetSet(now, "s/t", 5),
            AttemptStarted(now, "s/t", "1", workers, Profile(10**6)),
        ):
            assert runtime.record(event)

        def spines() -> set[str]:
            """Return the spines whose links the policy is told that the job loads."""
            links = [FABRIC.links[i] for i in runtime.network.snapshot(runtime.tracker).jobs.link]
            return {end for link in links for end in (link.src, link.dst) if end.startswith("s")}

        assert spines() == {"s1"}
        switches.see(NetworkSeen((), frozenset({("l1", "s1")}), ALL))
        assert spines() == {"s2"}
        switches.see(NetworkSeen((), frozenset({("l1", "s1"), ("l1", "s2")}), ALL))
        assert spines() == {"s1"}, "where no path is left, the one that the file says is as good as any"
        switches.see(NetworkSeen((), frozenset(), ALL))
        assert spines() == {"s1"}
        await runtime.stop()

    asyncio.run(play())
