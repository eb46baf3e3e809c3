"""Whether a controller takes an agent in: asked of one that is served, which then has no agent all the same."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamer.doctor.findings import CheckVerdict
from beamer.testing.fabrics import star
from controller.identity.authority import KeyFiles
from controller.identity.credentials import read_credentials
from hostagent.doctor.joining import Joining, judge_joining, try_to_join
from hostagent.link.tls import client_context
from tests.support.served_controller import Served, made_authority, served, signed

FABRIC = star(2)
NAMES = sorted(FABRIC.agents)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path, KeyFiles]]:
    """A controller that asks agents for certificates, its authority's file, and the files of the first agent."""
    directory = tmp_path_factory.mktemp("joining")
    authority = made_authority(directory)
    own = signed(authority, "controller", "spiffe://beamer/controller", dns="localhost")
    files = signed(authority, NAMES[0], f"spiffe://beamer/agent/{NAMES[0]}")
    credentials = read_credentials(own.certificate, own.key, authority.certificate, None)
    with served(FABRIC, directory / "journal.db", credentials=credentials) as started:
        started.url = started.url.replace("127.0.0.1", "localhost")
        yield started, authority.certificate, files


def test_an_agents_certificate_name_and_authority_are_tried_without_joining(site: tuple[Served, Path, KeyFiles]) -> None:
    controller, ca, files = site
    own = client_context(ca, files.certificate, files.key)
    assert try_to_join(NAMES[0], controller.url, own) == Joining(NAMES[0], controller.url)
    assert controller.ask(lambda runtime: sorted(runtime.agents.connected)) == []
    other = try_to_join(NAMES[1], controller.url, own)
    assert f"its certificate is for {NAMES[0]}" in other.refused
    without = try_to_join(NAMES[0], controller.url, client_context(ca))
    assert without.refused
    strange = try_to_join(NAMES[0], controller.url, ssl.create_default_context())
    assert "its certificate is refused" in strange.refused
    for refused in (other, strange):
        (found,) = judge_joining(refused)
        assert found.verdict is CheckVerdict.FAULT
        assert found.fix


@pytest.mark.parametrize(
    ("refused", "fix"),
    [
        ("agent: got 'h9', expected one of h1, h2", "give --name as the network's file has it"),
        ("agent 'h1': its certificate is for h2", "give --cert and --key"),
        ("its certificate is refused: self-signed certificate", "give --ca"),
        ("protocol: got 9, expected version 1 to 3: upgrade the agent", "upgrade what is named"),
        ("no welcome within 5 s", "see the controller's log"),
    ],
)
def test_each_refusal_has_its_fix(refused: str, fix: str) -> None:
    (found,) = judge_joining(Joining("h1", "https://c1", refused))
    assert found.verdict is CheckVerdict.FAULT
    assert fix in found.fix
    (fine,) = judge_joining(Joining("h1", "https://c1"))
    assert fine.verdict is CheckVerdict.OK
