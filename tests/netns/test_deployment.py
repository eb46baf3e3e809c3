"""The documented commands, as they stand in docs/operate.md: certificates, tokens, controller, agent, switch, trainer."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from beamer.ports import HTTP_PORT
from tests.netns.lab import FABRIC, Lab
from tests.support.checkout import ROOT
from tests.support.pages import blocks

pytestmark = pytest.mark.netns

PATIENCE_S = 60.0
SECTION = "Who may do what"
PROGRAMS = {
    "python": sys.executable,
    "beamer": f"{sys.executable} -m beamer.cli",
    "beamer-controller": f"{sys.executable} -m controller.cli",
    "beamer-hostagent": f"{sys.executable} -m hostagent.cli --state-dir STATE --attach STATE/socket",
}
TRAINER = """
import os, sys, urllib.request, ssl, json
from pathlib import Path
from beamer.client import Client
with Client(sys.argv[1], 10.0) as client:
    client.study("resnet", run="one").trial("a")
    client.study("others", run="one")
    client.flush(30)
bearer = "Bearer " + Path(os.environ["BEAMER_TOKEN_FILE"]).read_text().strip()
request = urllib.request.Request(sys.argv[1] + "/v1/studies", headers={"Authorization": bearer})
with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=os.environ["BEAMER_CA"])) as answer:
    print(*(study["name"] for study in json.load(answer)["studies"]))
"""


class Site:
    """A directory in the place of /etc and /var, the switches' namespace in the place of the machines."""

    def __init__(self, lab: Lab, directory: Path, stack: ExitStack) -> None:
        self.lab = lab
        self.directory = directory
        self._stack = stack
        text = (ROOT / "docs" / "operate.md").read_text("utf-8")
        (section,) = re.findall(rf"^## {SECTION}$(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
        code = "".join(block.code for block in blocks(section) if block.language == "sh").replace("\\\n", " ")
        self.commands = [" ".join(line.split()) for line in code.splitlines()]
        (directory / "fabric.json").write_text(json.dumps(FABRIC.to_dict()))
        (directory / "train.py").write_text(TRAINER)

    def command(self, beginning: str) -> str:
        """Return the one documented command with this in it, with this machine's paths and programs."""
        (found,) = [command for command in self.commands if beginning in command]
        places = {"/etc/beamer": self.directory, "/var/lib/beamer": self.directory, "train.py": self.directory / "train.py"}
        for place, here in {**places, "10.0.0.1": "127.0.0.1", "c1.example": "localhost"}.items():
            found = found.replace(place, str(here))
        return " ".join(PROGRAMS.get(word, word) for word in found.split(" ")).replace("STATE", str(self.directory))

    def run(self, beginning: str) -> str:
        return self.lab.run("bash", "-c", self.command(beginning))

    def start(self, beginning: str, log: str) -> "subprocess.Popen[bytes]":
        inside = ["ip", "netns", "exec", self.lab.prefix, "bash", "-c", f"exec {self.command(beginning)}"]
        output = self._stack.enter_context((self.directory / log).open("ab"))
        process = self._stack.enter_context(subprocess.Popen(inside, stdout=output, stderr=output, cwd=ROOT))
        self._stack.callback(process.kill)
        return process

    def health(self) -> dict[str, dict[str, int]]:
        ask = f"curl -s --cacert {self.directory}/ca.pem https://localhost:{HTTP_PORT}/v1/health"
        return json.loads(self.lab.run("bash", "-c", f"{ask} || echo null") or "null") or {}

    def log(self, name: str) -> str:
        return (self.directory / name).read_text()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def site(lab: Lab, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(lab, tmp_path, stack)


def test_the_documented_commands_do_what_they_say(site: Site) -> None:
    site.run("beamer certs")
    site.run("--new-key")
    site.start("beamer-controller", "controller")
    until(lambda: "serving" in site.log("controller"))
    site.start("beamer-hostagent", "agent")
    until(lambda: site.health().get("agents", {}).get("connected") == 1)
    site.run("set-ssl")
    site.run("set-controller")
    until(lambda: site.health()["switches"]["installed"] == 1)
    assert site.lab.flows("l1")

    site.lab.run("ovs-vsctl", "set-controller", "l2", "ssl:127.0.0.1:6653")  # The switch l2 shows the certificate of l1.
    until(lambda: "its certificate is for" in site.log("controller"))
    assert site.health()["switches"]["installed"] == 1
    assert not site.lab.flows("l2")

    site.run("beamer token --key")
    assert site.run("train.py").split() == ["resnet"]
    assert "the trainer of study 'resnet' may not write to the study 'others'" in site.log("controller")

    secrets = {
        "the key of tokens": site.log("token.key").strip(),
        "a token": site.log("resnet.token").strip(),
        **{path.name: path.read_text().splitlines()[1] for path in site.directory.glob("*-key.pem")},
    }
    assert len(secrets) == 2 + 2 + len(FABRIC.agents) + len(FABRIC.switches)
    command_lines = b" ".join(command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
    assert b"controller.cli" in command_lines
    for what, secret in secrets.items():
        assert len(secret) >= 64, what
        assert secret.encode() not in command_lines, what
        for log in ("controller", "agent"):
            assert secret not in site.log(log), (what, log)


def command_line(path: Path) -> bytes:
    """Return what a file of /proc holds, nothing where its process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
