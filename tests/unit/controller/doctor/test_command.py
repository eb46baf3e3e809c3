"""`beamer doctor controller`: the whole command, with files as they should be and otherwise."""

import json
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import beamer.cli
from beamer.testing.fabrics import star
from controller.doctor import command
from controller.doctor.command import CHECKS
from controller.identity.tokens import make_key
from tests.support.commands import run_here
from tests.support.served_controller import made_authority, signed


@dataclass
class Machine:
    """A controller's files, and the options that name them."""

    directory: Path
    options: dict[str, str]

    def examine(self, code: int, *more: str, **changed: str) -> dict[str, list[dict[str, Any]]]:
        options = self.options | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
        words = [part for option in options.items() for part in option]
        done = run_here(beamer.cli.main, "doctor", "controller", "--json", *words, *more)
        assert done.returncode == code, done.stdout + done.stderr
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in CHECKS}
        for check in json.loads(done.stdout)["checks"]:
            found[check["check"]].append(check)
        return found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(command, "_is_synchronised", lambda: True)
    authority = made_authority(tmp_path)
    files = signed(authority, "controller", "spiffe://beamer/controller", dns="localhost", valid_s=90 * 86_400)
    make_key(tmp_path / "token.key")
    (tmp_path / "fabric.json").write_text(json.dumps(star(2).to_dict()))
    return Machine(
        tmp_path,
        {
            "--fabric": str(tmp_path / "fabric.json"),
            "--journal": f"sqlite:///{tmp_path}/journal.db",
            "--http": "127.0.0.1:0",
            "--openflow": "127.0.0.1:0",
            "--tls-cert": str(files.certificate),
            "--tls-key": str(files.key),
            "--tls-ca": str(authority.certificate),
            "--token-key": str(tmp_path / "token.key"),
        },
    )


def test_a_machine_that_is_as_it_should_be_has_no_fault(machine: Machine) -> None:
    found = machine.examine(0)
    assert {check["verdict"] for checks in found.values() for check in checks} <= {"ok", "warning"}
    assert "2 hosts and 1 switches" in found["network"][0]["found"]
    assert {path.name for path in machine.directory.iterdir()} >= {"fabric.json"}
    assert not (machine.directory / "journal.db").exists()


def test_faults_of_files_and_addresses_are_named_together(machine: Machine) -> None:
    (machine.directory / "token.key").chmod(0o644)
    (machine.directory / "fabric.json").write_text('{"name": 3}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        found = machine.examine(1, http=taken, journal=f"sqlite:///{machine.directory}/absent/journal.db")
    faulty = {name for name, checks in found.items() if "fault" in {check["verdict"] for check in checks}}
    assert faulty == {"network", "journal", "addresses", "credentials"}
    assert "chmod o=" in found["credentials"][0]["fix"]
    assert taken in found["addresses"][0]["found"]
    assert found["exposure"][0]["verdict"] == "not checked"


def test_a_key_of_another_certificate_is_a_fault(machine: Machine) -> None:
    other = signed(made_authority(machine.directory / "other"), "other", dns="localhost")
    found = machine.examine(1, tls_key=str(other.key))
    assert "PEM files that belong together" in found["credentials"][0]["fix"]


def test_an_exposed_address_without_credentials_is_a_fault(machine: Machine) -> None:
    machine.options = {"--http": "0.0.0.0:0", "--openflow": "none"}
    found = machine.examine(1)
    assert "reached from other machines" in found["exposure"][0]["found"]
    assert [check["verdict"] for check in found["addresses"]] == ["ok"]
    assert found["network"][0]["found"] == "--fabric is not given"
    assert machine.examine(0, "--insecure")["exposure"][0]["verdict"] == "not checked"


def test_a_name_that_is_not_found_keeps_no_other_check_from_being_made(machine: Machine) -> None:
    found = machine.examine(1, http="host.invalid:8657")
    faulty = {name for name, checks in found.items() if "fault" in {check["verdict"] for check in checks}}
    assert faulty == {"addresses"}
    assert [check["verdict"] for check in found["addresses"]] == ["fault", "ok"]
    assert "host.invalid:8657 (--http): the name is not found" in found["addresses"][0]["found"]
    assert found["network"][0]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("option", "value"),
    [("--journal", "postgresql+psycopg://u:" + secrets.token_hex(4) + "@h/d"), ("--http", "nowhere")],
    ids=["a secret", "no address"],  # Each process that collects tests has to name them alike.
)
def test_an_option_that_cannot_be_is_refused_and_no_secret_is_shown(option: str, value: str) -> None:
    done = run_here(beamer.cli.main, "doctor", "controller", option, value)
    assert (done.returncode, done.stdout) == (2, "")
    assert option in done.stderr
    assert value not in done.stderr or option == "--http"
