"""Which interfaces, peers and URLs are examined on a host, and what its files are said to be."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import beamer.cli
from beamer.doctor.contact import Contact
from beamer.doctor.findings import CheckVerdict, Unseen
from controller.identity.authority import Authority, Subject
from hostagent.doctor import host
from hostagent.doctor.composition import CompositionFacts
from hostagent.doctor.host import HostFacts, gather, judge_identity, read_identity
from hostagent.doctor.interfaces import InterfaceFacts
from hostagent.doctor.kernel import KernelFacts
from hostagent.doctor.path_mtu import PathMtu
from tests.support.commands import run_here

NOBODY = "ws://127.0.0.1:9"
KERNEL = KernelFacts("6.18.1", None, True, "nftables v1.0.6", None, 0, "this process")
HOSTS = {"h1": "10.0.0.1", "h2": "10.0.0.2"}


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "Gathered":
    return Gathered(monkeypatch, tmp_path)


class Gathered:
    """Gathers on a machine whose interface `ens1` is that of host h1, and which can measure every path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.hosts: Mapping[str, str] | Unseen = HOSTS
        self.directory = directory
        self._set = monkeypatch.setattr
        self._set(host, "read_kernel", lambda agent: KERNEL)
        self._set(host, "_hosts", lambda contact: self.hosts)
        self._set(host, "interfaces_with", lambda addresses: ("ens1",) if "10.0.0.1" in addresses else ())
        self._set(host, "read_interfaces", lambda names: tuple(InterfaceFacts(name, mtu=1500) for name in names))
        self._set(
            host, "read_composition", lambda names, addresses: CompositionFacts(tuple(names), (), (), frozenset(addresses))
        )
        self._set(host, "measure", lambda peer, name, sends: PathMtu(peer, name, sends, sends))

    def __call__(self, *interfaces: str, name: str | None = None, peer: str | None = None) -> HostFacts:
        identity = read_identity(name, None, None, None, {})
        return gather(identity, NOBODY, interfaces, peer, None, str(self.directory / "agent.sock"), self.directory, {})


def names(facts: HostFacts) -> list[str]:
    assert not isinstance(facts.interfaces, Unseen)
    return [one.name for one in facts.interfaces]


def test_interfaces_are_those_given_the_agents_or_the_networks(gathered: Gathered, tmp_path: Path) -> None:
    assert names(gathered("eth7")) == ["eth7"]
    assert names(gathered(name="h1")) == ["ens1"]
    (tmp_path / "h1").mkdir()
    (tmp_path / "h1" / "interfaces").write_text("ens2\nens3\n")
    assert names(gathered(name="h1")) == ["ens2", "ens3"]
    gathered.hosts = Unseen("no controller")
    unknown = gathered().interfaces
    assert isinstance(unknown, Unseen)
    assert "--interface" in unknown.reason
    assert "no controller" in unknown.reason


def test_the_peer_is_the_one_given_or_another_host_of_the_network(gathered: Gathered) -> None:
    assert gathered("ens1", peer="10.9.9.9").path == PathMtu("10.9.9.9", "ens1", 1500, 1500)
    assert gathered("ens1").path == PathMtu("10.0.0.2", "ens1", 1500, 1500)
    gathered.hosts = {"h1": "10.0.0.1"}
    assert gathered("ens1").path == Unseen("the network has no other host; name one with --peer")
    gathered.hosts = Unseen("no controller")
    assert gathered("ens1").path == Unseen("no other host is known (no controller); name one with --peer")


def test_an_agents_urls_are_asked_over_http(gathered: Gathered) -> None:
    contact = gathered("ens1").contact
    assert isinstance(contact, Contact)
    assert [one.url for one in contact.replies] == ["http://127.0.0.1:9"]
    assert host._http("wss://a:1, ws://b:2,https://c,d:4") == "https://a:1,http://b:2,https://c,d:4"


def test_files_that_do_not_belong_together_are_a_fault(tmp_path: Path, gathered: Gathered) -> None:
    now = datetime.now(UTC)
    authority = Authority.make(tmp_path, now)
    files, other = (
        authority.issue(Subject(name, (f"spiffe://beamer/agent/{name}",)), now, now + timedelta(days=90)) for name in ("a", "b")
    )
    facts = gathered("ens1")

    def verdicts(cert: Path | None, key: Path | None) -> list[CheckVerdict]:
        identity = read_identity("a", authority.certificate, cert, key, {})
        return [one.verdict for one in judge_identity(HostFacts(**{**vars(facts), "identity": identity}))]

    assert verdicts(files.certificate, files.key) == [CheckVerdict.OK, CheckVerdict.OK]
    assert verdicts(files.certificate, other.key) == [CheckVerdict.FAULT, CheckVerdict.OK, CheckVerdict.OK]
    assert verdicts(None, files.key) == [CheckVerdict.FAULT, CheckVerdict.OK]


def test_a_name_that_cannot_be_is_refused() -> None:
    done = run_here(beamer.cli.main, "doctor", "host", "--name", "h 1", env={})
    assert (done.returncode, done.stdout) == (2, "")
    assert "--name: got 'h 1'" in done.stderr
