"""Who the database of a switch is, and who may change it: real databases under TLS."""

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from beamer.cli import main
from beamer.network.fabric import Fabric
from beamer.testing.fabrics import star
from controller.identity.credentials import read_credentials
from controller.ovsdb.keeper import QueueKeeper
from tests.support.commands import run_here

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
PATIENCE_S = 20
pytestmark = pytest.mark.skipif(not (shutil.which("ovsdb-server") and SCHEMA.exists()), reason="needs Open vSwitch")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@dataclass
class Site:
    """A network with one switch, its file, and certificates."""

    directory: Path
    fabric: Fabric
    port: int
    stack: ExitStack

    def certificates(self, directory: str) -> Path:
        """Make certificates of an authority of that name."""
        file = self.directory / "fabric.json"
        file.write_text(json.dumps(self.fabric.to_dict()))
        made = self.directory / directory
        more = ("--agent", "h9", "--switch", "s9=0x99", "--ip", "127.0.0.1")
        done = run_here(main, "certs", str(made), "--fabric", str(file), *more)
        assert done.returncode == 0, done.stderr
        return made

    def database(self, certificates: Path, name: str) -> None:
        """Start a database that shows a certificate and asks for one of the same authority."""
        at = self.directory / f"db{self.port}"
        subprocess.run(["ovsdb-tool", "create", f"{at}.db", SCHEMA], check=True, capture_output=True)
        files = (f"--certificate={certificates}/{name}.pem", f"--private-key={certificates}/{name}-key.pem")
        options = (*files, f"--ca-cert={certificates}/ca.pem", f"--unixctl={at}.ctl", "-vconsole:off", "--no-chdir")
        remotes = (f"--remote=punix:{at}.sock", f"--remote=pssl:{self.port}:127.0.0.1")
        process = self.stack.enter_context(subprocess.Popen(["ovsdb-server", f"{at}.db", *remotes, *options]))
        self.stack.callback(process.kill)
        wanted = ["add-br", "s1", "--", "add-port", "s1", self.fabric.links[-1].interface]
        dpid = f"{self.fabric.switches[0].dpid:016x}"
        vsctl = ["ovs-vsctl", f"--db=unix:{at}.sock", "--no-wait", "--retry", "-t", "10"]
        subprocess.run([*vsctl, "--", "init"], check=True, capture_output=True)
        subprocess.run([*vsctl, *wanted, "--", "set", "bridge", "s1", f'datapath_id="{dpid}"'], check=True)

    def keeper(self, certificates: Path) -> QueueKeeper:
        names = ("controller.pem", "controller-key.pem", "ca.pem")
        tls = read_credentials(*(certificates / one for one in names), None).databases
        return QueueKeeper(self.fabric, 2, tls, lambda: None)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    port, fabric = free_port(), star(2)
    switches = (replace(fabric.switches[0], ovsdb=f"ssl:127.0.0.1:{port}"),)
    with ExitStack() as stack:
        yield Site(tmp_path, replace(fabric, switches=switches), port, stack)


def reached(keeper: QueueKeeper) -> str:
    """Return what is said of the switch as a whole, or which ports lack queues, once something is known."""

    async def scenario() -> str:
        task = asyncio.create_task(keeper.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not keeper.faults:
                    await asyncio.sleep(0.01)
            return keeper.faults[0].text
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    return asyncio.run(scenario())


def test_controller_and_database_know_each_other_by_their_certificates(site: Site) -> None:
    certificates = site.certificates("own")
    site.database(certificates, "switch-s1")
    # The bridge has one of the two ports: that the other is missing is known from what the database says.
    assert "gets no queues: its database has no port of that number" in reached(site.keeper(certificates))


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ("controller", "its certificate is no switch's: certificate: got 'spiffe://beamer/controller'"),
        ("switch-s9", "its certificate is refused: unsuitable certificate purpose"),
        ("agent-h9", "its certificate is refused: unsuitable certificate purpose"),
    ],
)
def test_a_database_with_the_certificate_of_something_else_is_told_nothing(shown: str, reason: str, site: Site) -> None:
    certificates = site.certificates("own")
    site.database(certificates, shown)
    assert reason in reached(site.keeper(certificates))
    socket_file = next(site.directory.glob("db*.sock"))
    rows = ["ovs-vsctl", f"--db=unix:{socket_file}", "--no-wait", "list", "queue"]
    assert subprocess.run(rows, check=True, capture_output=True, text=True).stdout == ""


def test_another_switch_of_the_same_network_is_not_taken_for_this_one(site: Site) -> None:
    other = replace(site.fabric.switches[0], name="s2", dpid=2)
    both = replace(site.fabric, switches=(*site.fabric.switches, other))
    alone, site.fabric = site.fabric, both
    certificates = site.certificates("own")
    site.fabric = alone
    site.database(certificates, "switch-s2")
    assert "its certificate is of the datapath id 0000000000000002, not of 0000000000000001" in reached(
        site.keeper(certificates)
    )


def test_neither_takes_certificates_of_another_authority(site: Site) -> None:
    own, others = site.certificates("own"), site.certificates("others")
    site.database(others, "switch-s1")
    assert "its certificate is refused" in reached(site.keeper(own))
    mixed = site.directory / "mixed"
    shutil.copytree(own, mixed)
    shutil.copy(others / "ca.pem", mixed / "ca.pem")
    refused = reached(site.keeper(mixed))
    closed = "it has closed the connection; it may refuse this controller's certificate"
    assert closed in refused or "no mutual TLS: TLSV1_ALERT_UNKNOWN_CA" in refused
