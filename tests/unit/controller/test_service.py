"""What a controller does before it leads, follows or serves."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from beamer.errors import TakenError
from beamer.network.plan_modes import plan_mode
from beamer.network.policies import network_policy
from controller import service as module
from controller.http.standby import ReplaceableApplication
from controller.identity.credentials import Credentials
from controller.service import Service
from controller.settings import ControllerSettings
from tests.support import plain_http
from topologies.single import build

FABRIC = build(hosts=2)
SETTINGS = ControllerSettings(FABRIC, network_policy("beamer"), mode=plan_mode("classes"))


def service() -> Service:
    return Service(SETTINGS, "sqlite:////nowhere", ("127.0.0.1", 0), 10, Credentials())


def test_it_leads_or_follows_when_a_first_decision_was_made(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    steps, compiled = list[str](), threading.Event()

    def warm_up(*_: Any) -> None:
        compiled.wait()
        steps.append("decided")

    async def lead(*_: Any) -> None:
        steps.append("leads")
        raise TakenError("another controller has taken the journal", "end it")

    monkeypatch.setattr(module, "warm_up", warm_up)
    monkeypatch.setattr(module, "lead", lead)
    monkeypatch.setattr(module, "WAIT_SHOWN_S", 0.01)

    said = ""

    async def scenario() -> None:
        nonlocal said
        leading = asyncio.create_task(module._lead(service(), ReplaceableApplication(), None, lambda: None))  # type: ignore[arg-type]
        async with asyncio.timeout(30):
            while said.count("there is no service before") < 2:
                await asyncio.sleep(0.01)
                said += capfd.readouterr().out
            assert steps == []
            compiled.set()
            with pytest.raises(TakenError):
                await leading

    asyncio.run(scenario())
    assert steps == ["decided", "leads"]
    assert "waited_s=" in said


def test_a_policy_that_fails_ahead_keeps_no_controller_from_leading(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def warm_up(*_: Any) -> None:
        raise ValueError("no order")

    monkeypatch.setattr(module, "warm_up", warm_up)
    asyncio.run(module._prepare(SETTINGS))
    assert "no decision could be made in advance" in capfd.readouterr().out


# Decides ahead as a controller does, then on many more trials and under another mode, and prints what was compiled in between.
LATER_DECISIONS = """
from beamer.compilation import COMPILATION
from beamer.network.kernels import bssi
from beamer.network.plan_modes import plan_mode
from beamer.network.policies import network_policy
from beamer.testing.fabrics import star
from controller import warm_up

def signatures():
    return {name: list(map(str, found.signatures)) for name, found in vars(bssi).items() if hasattr(found, "signatures")}

policy = network_policy("beamer")
warm_up.warm_up(star(2), policy, 8, None)
ahead = signatures()
for warm_up.TRIALS in (1, 2, 20, 60):
    for mode in ("classes", "rates"):
        warm_up.warm_up(star(9), policy, 8, plan_mode(mode))
assert any(ahead.values()), ahead  # a kernel that others alone call has none where these are read from the cache
assert signatures() == ahead, (ahead, signatures())
"""


@pytest.mark.timeout(600)  # where kernels are not compiled yet
def test_later_decisions_need_no_kernel_that_the_one_made_ahead_has_not_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LATER_DECISIONS], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.long  # it compiles kernels anew
@pytest.mark.timeout(600)
def test_a_fresh_installation_compiles_before_it_says_that_it_serves(tmp_path: Path, own_port: int) -> None:
    fabric, kernels = tmp_path / "fabric.json", tmp_path / "kernels"
    fabric.write_text(json.dumps(FABRIC.to_dict()))
    url = f"http://127.0.0.1:{own_port}"
    options = {
        "fabric": str(fabric),
        "journal": f"sqlite:///{tmp_path / 'journal.db'}",
        "http": f"127.0.0.1:{own_port}",
        "openflow": "127.0.0.1:0",
    }
    command = [sys.executable, "-m", "controller.cli", *(f"--{name}={value}" for name, value in options.items())]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kernels)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if re.search(r"\bserving\b", line):
                    break
            assert sum("compiling kernels, once after an installation" in line for line in said) == 1
            compiled = {path for path in kernels.rglob("*") if path.is_file()}
            assert compiled
            with plain_http.Client(base_url=url) as client:
                for number, (trial, sync_bytes) in enumerate((("large", 10**9), ("small", 10**5))):
                    body: dict[str, Any] = {"step": 10, "stage": f"rung{number}"}
                    assert client.put(f"/v1/studies/s{number}", json={}).is_success
                    assert client.put(f"/v1/studies/s{number}/stages/rung{number}", json={}).is_success
                    assert client.put(f"/v1/studies/s{number}/trials/{trial}", json={}).is_success
                    assert client.put(f"/v1/studies/s{number}/trials/{trial}/target", json=body).is_success
                    workers = [{"rank": rank, "host": host.name} for rank, host in enumerate(FABRIC.hosts)]
                    attempt = {"workers": workers, "sync_bytes": sync_bytes}
                    answer = client.put(f"/v1/studies/s{number}/trials/{trial}/attempts/first", json=attempt)
                    assert answer.is_success, answer.text
                while len(jobs := client.get("/v1/plan").json()["jobs"]) < 2:
                    pass
            assert {path for path in kernels.rglob("*") if path.is_file()} == compiled, "compiled since it serves"
            assert jobs["s1/small"]["class"] < jobs["s0/large"]["class"]
        finally:
            process.kill()
