"""Who a certificate is for: exactly one name, of the kind that is asked for."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beamer.errors import InputError, PlatformError
from controller.identity.certificates import (
    CONTROLLER_URI,
    agent_of,
    agent_uri,
    mutual_tls,
    require_mutual,
    switch_of,
    switch_uri,
)
from tests.support.served_controller import made_authority, signed


def naming(*uris: str) -> dict[str, Any]:
    return {"subjectAltName": (*(("URI", uri) for uri in uris), ("DNS", "spiffe://beamer/controller"))}


def test_identities_are_read_as_they_are_written() -> None:
    assert switch_of(naming(switch_uri(0x2A))) == 0x2A
    assert switch_uri(0x2A) == "spiffe://beamer/switch/000000000000002a"
    assert agent_of(naming(agent_uri("rack-1.h_2"))) == "rack-1.h_2"


@pytest.mark.parametrize("read", [switch_of, agent_of])
@pytest.mark.parametrize(
    "certificate",
    [
        None,
        {},
        naming(),
        naming("https://beamer/controller"),
        naming("spiffe://elsewhere/controller"),
        naming("spiffe://beamer/controller/"),
        naming("spiffe://beamer/switch/2a"),
        naming("spiffe://beamer/switch/000000000000002A"),
        naming("spiffe://beamer/switch/000000000000002a/x"),
        naming("spiffe://beamer/agent/"),
        naming("spiffe://beamer/agent/a/b"),
        naming("spiffe://beamer/agent/a\n"),
        naming(CONTROLLER_URI, CONTROLLER_URI),
        naming(CONTROLLER_URI, switch_uri(1)),
        naming(agent_uri("a"), "https://example.org"),
        naming(switch_uri(1), agent_uri("a")),
    ],
)
def test_any_other_certificate_is_nobodys(read: Callable[[dict[str, Any] | None], object], certificate: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="certificate"):
        read(certificate)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä"])
def test_a_name_that_cannot_stand_in_an_identity(name: str) -> None:
    with pytest.raises(InputError, match="name"):
        agent_uri(name)


def test_a_context_that_asks_for_no_certificate_or_speaks_old_tls_is_refused(tmp_path: Path) -> None:
    authority = made_authority(tmp_path)
    files = signed(authority, "controller", CONTROLLER_URI, dns="localhost")
    context = mutual_tls(ssl.Purpose.CLIENT_AUTH, files.certificate, files.key, authority.certificate)
    require_mutual(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    with pytest.raises(InputError, match="verify_mode"):
        require_mutual(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.raises(InputError, match="minimum_version"):
        require_mutual(context)


def test_files_that_cannot_be_used_are_one_clear_error(tmp_path: Path) -> None:
    authority = made_authority(tmp_path)
    files = signed(authority, "controller", CONTROLLER_URI, dns="localhost")
    with pytest.raises(PlatformError, match="absent"):
        mutual_tls(ssl.Purpose.CLIENT_AUTH, files.certificate, tmp_path / "absent", authority.certificate)
