"""What the API, the metrics, the log and the commands say of switches that cannot hold all rules."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import beamer.cli
from beamer.network.policies import network_policy
from beamer.studies.journal.store import Journal
from beamer.testing.fabrics import two_spines
from controller.http.api import create_app
from controller.openflow.reports import SwitchChanges, SwitchEvent, SwitchForm, SwitchInstalled, SwitchLost
from controller.settings import ControllerSettings
from tests.support.commands import run_here
from tests.support.served_controller import SwitchesInMemory, made_runtime, served

FABRIC = two_spines(1)
WHY = "not full: it has 1 of the 4 tables that are needed"
BELIEVED = "bytes by class that h1 send are not counted at l1, and their codepoints are believed"
LESSER = SwitchForm("l1", "host marks", WHY, (BELIEVED,), counts=False)
WITHOUT = SwitchForm("l1", "none", "not full: table 0 needs 20 rules and has room for 7", able=False, counts=False)


def test_the_api_metrics_and_log_say_the_form_of_each_switch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def play() -> None:
        switches = SwitchesInMemory([switch.name for switch in FABRIC.switches])
        settings = ControllerSettings(FABRIC, network_policy("fifo"))
        runtime = made_runtime(settings, Journal(f"sqlite:///{tmp_path / 'journal.db'}"), switches)
        await runtime.start()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(create_app(runtime)), base_url="http://beamer") as client:

            async def answer(path: str) -> dict[str, object]:
                return dict((await client.get(path)).json())

            full = {"form": "full", "reason": "", "limits": [], "able": True}
            assert (await answer("/v1/health"))["switch_forms"] == dict.fromkeys(FABRIC.switch, full)
            assert (await answer("/v1/counters"))["uncounted"] == {}
            switches.tell(LESSER)
            told = {"form": "host marks", "reason": WHY, "limits": [BELIEVED], "able": True}
            assert (await answer("/v1/health"))["switch_forms"] == {**dict.fromkeys(FABRIC.switch, full), "l1": told}
            assert (await answer("/v1/counters"))["uncounted"] == {"l1": ["h1"]}
            metrics = (await client.get("/metrics")).text
            assert 'beamer_switches{form="host marks"} 1.0' in metrics
            assert 'beamer_switches{form="full"} 3.0' in metrics
            assert runtime.installation.switches["l1"] > 0
            switches.tell(SwitchChanges("l1"))
            assert runtime.installation.switches["l1"] == 0
            switches.acknowledge()
            assert runtime.installation.switches["l1"] > 0
            switches.tell(replace(WITHOUT, counts=True))  # It is tried again and again in the full form.
            assert (await answer("/v1/counters"))["uncounted"] == {}
            switches.tell(WITHOUT)
            assert runtime.installation.switches["l1"] == 0
            assert 'beamer_switches{form="none"} 1.0' in (await client.get("/metrics")).text
            switches.tell(SwitchLost("l1"))
            assert "l1" not in (await answer("/v1/health"))["switch_forms"]  # type: ignore[operator]
        await runtime.stop()

    asyncio.run(play())
    [line] = [line for line in capfd.readouterr().out.splitlines() if "switch cannot hold all rules" in line]
    assert "host marks" in line
    assert WHY in line
    assert BELIEVED in line


def test_the_commands_name_a_switch_that_cannot_hold_all_rules(tmp_path: Path) -> None:
    with served(FABRIC, tmp_path / "journal.db") as controller:

        def tell(*events: SwitchEvent) -> None:
            controller.ask(lambda runtime: [runtime._delivery._on_switch_event(event) for event in events])

        def asked(*arguments: str) -> str:
            env = {"BEAMER_URL": controller.url, "COLUMNS": "250"}
            return run_here(beamer.cli.main, *arguments, env=env).stdout

        tell(LESSER, SwitchInstalled("l1", 1, 0))
        words = f"l1: host marks only (one table); {WHY}"
        assert words in asked("status")
        check = asked("fabric", "check")
        assert f"remark: {words}\n" in check
        assert f"remark: {BELIEVED}\n" in check
        assert json.loads(asked("fabric", "check", "--json"))["switch_forms"]["l1"]["form"] == "host marks"
        assert "can hold no rules" not in asked("status")
        tell(WITHOUT)
        assert f"l1 can hold no rules: {WITHOUT.reason}" in asked("status")
