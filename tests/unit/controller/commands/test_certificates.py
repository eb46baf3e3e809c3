"""`beamer certs`: who gets a certificate for what, and that no key is lost or shown."""

import json
import ssl
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from beamer.cli import main
from controller.identity.authority import AUTHORITY_DAYS
from controller.identity.certificates import CONTROLLER_URI, agent_of, mutual_tls, switch_of
from topologies.leaf_spine import build

FABRIC = build()
Run = Callable[..., str]


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.json"
    path.write_text(json.dumps(FABRIC.to_dict()))
    return path


@pytest.fixture
def certs(tmp_path: Path, fabric: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*options: str, names: tuple[str, ...] = ("--name", "c.example", "--ip", "10.0.0.1"), code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["beamer", "certs", str(tmp_path / "d"), "--fabric", str(fabric), *names, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capfd.readouterr()
        assert (ended.value.code or 0) == code, printed
        return printed.err if code else printed.out

    return run


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def shown(certificate: Path) -> dict[str, Any]:
    """Return a certificate as a peer's is read from a connection."""
    return ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]


def test_controller_agents_and_switches_have_one_each(certs: Run, tmp_path: Path) -> None:
    certs()
    made = tmp_path / "d"
    assert ("URI", CONTROLLER_URI) in shown(made / "controller.pem")["subjectAltName"]
    assert {agent_of(shown(path)) for path in made.glob("agent-*.pem") if "-key" not in path.name} == FABRIC.agents
    for switch in FABRIC.switches:
        assert switch_of(shown(made / f"switch-{switch.name}.pem")) == switch.dpid
    for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        mutual_tls(purpose, made / "controller.pem", made / "controller-key.pem", made / "ca.pem")
    assert {stat.S_IMODE(path.stat().st_mode) for path in made.iterdir()} == {0o600}
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert not list(made.glob(".*"))


def test_agents_and_switches_of_a_network_that_has_no_file_yet_have_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "d"
    begin = ["beamer", "certs", str(made), "--name", "c.example"]
    monkeypatch.setattr(sys, "argv", [*begin, "--agent", "h1", "--agent", "h1", "--switch", "l1=00005254001200a0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert agent_of(shown(made / "agent-h1.pem")) == "h1"
    assert switch_of(shown(made / "switch-l1.pem")) == 0x5254001200A0
    assert len(list(made.glob("*.pem"))) == 2 * 4
    for options, said in (
        ([], "--fabric: got None, expected the network's file, or --agent and --switch"),
        (["--switch", "l1"], "--switch: got 'l1', expected NAME=DPID"),
        (["--switch", "l1=0x0"], "--switch: got 'l1=0x0', expected after NAME= a datapath id from 1 to 64 bits"),
        (["--switch", "l1=99999999999999999999"], "expected after NAME= a datapath id from 1 to 64 bits"),
        (["--switch", "l1=1", "--switch", "l1=7"], "expected one datapath id of l1, which has 0000000000000001 already"),
        (["--switch", "l1=x"], "--switch: got 'l1=x', expected after NAME=: '0x10'"),
        (["--agent", "../h1"], "agent: got '../h1'"),
    ):
        monkeypatch.setattr(sys, "argv", [*begin, *options])
        with pytest.raises(SystemExit) as refused:
            main()
        assert refused.value.code == 2
        assert said in capfd.readouterr().err


def test_what_each_certificate_is_for(certs: Run, tmp_path: Path) -> None:
    certs("--days", "7")
    for name, usage in (("controller", ExtendedKeyUsageOID.SERVER_AUTH), ("agent-h1", ExtendedKeyUsageOID.CLIENT_AUTH)):
        certificate = x509.load_pem_x509_certificate((tmp_path / "d" / f"{name}.pem").read_bytes())
        assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        left = certificate.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=6) < left <= timedelta(days=7)
    names = x509.load_pem_x509_certificate((tmp_path / "d" / "controller.pem").read_bytes()).extensions
    alternative = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternative.get_values_for_type(x509.DNSName) == ["c.example"]
    assert [str(ip) for ip in alternative.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    assert alternative.get_values_for_type(x509.UniformResourceIdentifier) == [CONTROLLER_URI]


def test_keys_that_are_there_are_kept_and_missing_ones_made(certs: Run, tmp_path: Path) -> None:
    certs()
    before = content(tmp_path / "d")
    assert "made" not in certs()
    assert content(tmp_path / "d") == before
    agents, switches = ("agent-h1.pem", "agent-h1-key.pem"), ("switch-s1.pem", "switch-s1-key.pem")
    for lost in (*agents, switches[1]):  # of the switch, a run was killed in between
        (tmp_path / "d" / lost).unlink()
    assert certs().count(" made") == 2
    after = content(tmp_path / "d")
    assert set(after) == set(before)
    assert {name for name in before if after[name] != before[name]} == {*agents, *switches}


def test_renewing_makes_all_anew_but_the_authority(certs: Run, tmp_path: Path) -> None:
    certs()
    before = content(tmp_path / "d")
    certs("--renew")
    after = content(tmp_path / "d")
    assert {name for name in before if after[name] == before[name]} == {"ca.pem", "ca-key.pem"}
    files = (tmp_path / "d" / name for name in ("controller.pem", "controller-key.pem", "ca.pem"))
    mutual_tls(ssl.Purpose.CLIENT_AUTH, *files)


def spoil_key(directory: Path) -> None:
    (directory / "agent-h1-key.pem").write_text("no key")


def swap_keys(directory: Path) -> None:
    (directory / "agent-h2-key.pem").replace(directory / "agent-h1-key.pem")


def swap_certificates(directory: Path) -> None:
    for kind in (".pem", "-key.pem"):
        (directory / f"agent-h2{kind}").replace(directory / f"agent-h1{kind}")


def lose_certificate(directory: Path) -> None:
    (directory / "agent-h1.pem").unlink()


def expose_key(directory: Path) -> None:
    (directory / "agent-h1-key.pem").chmod(0o644)


@pytest.mark.parametrize("spoil", [spoil_key, swap_keys, swap_certificates, lose_certificate, expose_key])
def test_what_is_not_as_it_was_made_is_named_and_nothing_is_written(
    spoil: Callable[[Path], None], certs: Run, tmp_path: Path
) -> None:
    certs()
    (tmp_path / "d" / "switch-s1.pem").unlink()  # It would be made, if anything were.
    (tmp_path / "d" / "switch-s1-key.pem").unlink()
    spoil(tmp_path / "d")
    before = content(tmp_path / "d")
    assert "agent-h1" in certs(code=2)
    assert content(tmp_path / "d") == before
    certs("--renew")
    certs()


@pytest.mark.parametrize(
    ("options", "names", "said"),
    [
        ((), (), "--name: got None, expected a DNS name of the controller"),
        ((), ("--name", "ä.example"), "--name: got 'ä.example', expected a DNS name"),
        ((), ("--ip", "10.0.0.300"), "--ip: got '10.0.0.300', expected an IP address"),
        (("--days", "0"), ("--name", "c"), f"--days: got 0, expected 1 to {AUTHORITY_DAYS}"),
        (("--days", str(AUTHORITY_DAYS + 1)), ("--name", "c"), f"expected 1 to {AUTHORITY_DAYS}"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    options: tuple[str, ...], names: tuple[str, ...], said: str, certs: Run, tmp_path: Path
) -> None:
    assert said in certs(*options, names=names, code=2)
    assert not (tmp_path / "d").exists()


def test_other_names_of_the_controller_need_renewing(certs: Run) -> None:
    certs()
    assert "--renew" in certs(names=("--name", "other.example"), code=2)
    certs("--renew", names=("--name", "other.example"))
    certs(names=("--name", "other.example"))


def test_a_name_that_leaves_the_directory_is_refused(certs: Run, tmp_path: Path, fabric: Path) -> None:
    fabric.write_text(fabric.read_text().replace('"agent": "h1"', '"agent": "../../h1"'))
    assert "agent: got '../../h1'" in certs(code=2)
    assert not (tmp_path / "d").exists()


def test_an_authority_that_is_half_there_is_refused(certs: Run, tmp_path: Path) -> None:
    certs()
    (tmp_path / "d" / "ca.pem").unlink()
    assert "ca.pem" in certs(code=2)
    (tmp_path / "d" / "ca.pem").write_bytes((tmp_path / "d" / "agent-h1.pem").read_bytes())
    assert "ca-key.pem" in certs(code=2)


def test_where_a_switch_has_a_database_it_serves_as_well_and_the_controller_connects(
    certs: Run, tmp_path: Path, fabric: Path
) -> None:
    certs()
    data = json.loads(fabric.read_text())
    del data["switches"][0]["agent"]
    data["switches"][0]["ovsdb"] = "ssl:10.0.0.5:6640"
    fabric.write_text(json.dumps(data))
    said = certs(code=2)
    assert "to serve and to connect; --renew makes one" in said
    certs("--renew")
    both = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    first, *others = (f"switch-{one['name']}" for one in data["switches"])
    for name, usages in (
        ("controller", both),
        (first, both),
        *((other, {ExtendedKeyUsageOID.CLIENT_AUTH}) for other in others),
    ):
        certificate = x509.load_pem_x509_certificate((tmp_path / "d" / f"{name}.pem").read_bytes())
        assert set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == usages
    assert "made" not in certs()
