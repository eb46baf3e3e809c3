"""Caps on their way from a plan to those who enforce them: agents, and edges of hosts that have none."""

from dataclasses import replace
from pathlib import Path

import pytest

from beamer.network.events import ConnectionsSeen
from beamer.network.plan_modes import ByRates
from beamer.studies.events import AttemptStarted, Event, TargetSet, TrialEnded, TrialRegistered
from beamer.studies.model import Profile, Role, TrialStatus, Worker
from controller.openflow.rules import JobRules
from tests.unit.controller.test_runtime import AGENT, FABRIC, HOSTS, REGISTERED, Desk, attached, connection, run, until

WITHOUT_AGENT = replace(
    FABRIC, hosts=tuple(replace(host, agent=None) if host.name == HOSTS[2] else host for host in FABRIC.hosts)
)


def job_rules(desk: Desk, key: str) -> JobRules | None:
    return next((rules for rules in desk.switches.installed[-1][1] if rules.key == key), None)


def test_a_job_behind_another_is_capped_where_it_sends_until_that_has_ended(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path, fabric=WITHOUT_AGENT, mode=ByRates())
        await desk.runtime.start()
        desk.record(*REGISTERED, attached("mnist/a", 0, 41), attached("mnist/b", 0, 42))
        desk.record(ConnectionsSeen(1000.0, AGENT[HOSTS[0]], (connection("mnist/a"), connection("mnist/b", 5001))))
        await until(lambda: job_rules(desk, "mnist/b") is not None)
        planned = desk.runtime.plan.jobs
        assert planned["mnist/a"].cap_bps is None
        cap_bps = planned["mnist/b"].cap_bps
        assert cap_bps is not None
        assert {worker.job: worker.cap_bps for worker in desk.sent[-1][1].workers} == {"mnist/a": None, "mnist/b": cap_bps}
        rules = job_rules(desk, "mnist/b")
        assert rules is not None
        assert rules.caps == {HOSTS[2]: cap_bps}, "where no agent could"
        assert {agent for agent, _ in desk.sent} == {AGENT[HOSTS[0]]}

        desk.record(TrialEnded(1000.0, "mnist/a", TrialStatus.FINISHED))
        await until(lambda: job_rules(desk, "mnist/a") is None)
        rules = job_rules(desk, "mnist/b")
        assert rules is not None
        assert rules.caps == {}
        assert [worker.cap_bps for worker in desk.sent[-1][1].workers] == [None]
        await desk.runtime.stop()

    run(play())


def test_workers_send_their_part_of_what_their_server_may(tmp_path: Path) -> None:
    key, workers = "mnist/served", (Worker(0, HOSTS[0]), Worker(1, HOSTS[1]), Worker(2, HOSTS[2], Role.SERVER))
    served: tuple[Event, ...] = (
        TrialRegistered(1000.0, "mnist", "served"),
        TargetSet(1000.0, key, 10, "rung0"),
        AttemptStarted(1000.0, key, "one", workers, Profile(1_000_000, "parameter-server")),
    )

    async def play() -> None:
        desk = Desk(tmp_path, mode=ByRates())
        await desk.runtime.start()
        desk.record(*REGISTERED, *served, *(attached(key, worker.rank, 50 + worker.rank) for worker in workers))
        await until(lambda: len({agent for agent, _ in desk.sent}) == 3)
        cap_bps = desk.runtime.plan.jobs[key].cap_bps
        assert cap_bps is not None
        caps = {agent: assignment.workers[0].cap_bps for agent, assignment in desk.sent}
        assert caps == {
            AGENT[HOSTS[2]]: cap_bps,
            **{AGENT[host]: pytest.approx(cap_bps / 2, abs=1) for host in HOSTS[:2]},
        }
        await desk.runtime.stop()

    run(play())


def test_a_restarted_controller_plans_the_same_caps(tmp_path: Path) -> None:
    async def play() -> None:
        desk = Desk(tmp_path, mode=ByRates())
        await desk.runtime.start()
        desk.record(*REGISTERED)
        await until(lambda: len(desk.runtime.plan.jobs) == 2)
        plan, generation = desk.runtime.plan, desk.runtime.installation.generation
        assert any(job.cap_bps for job in plan.jobs.values())
        await desk.runtime.stop()
        again = Desk(tmp_path, mode=ByRates())
        await again.runtime.start()
        assert (again.runtime.plan, again.runtime.installation.generation) == (plan, generation)
        await again.runtime.stop()

    run(play())
