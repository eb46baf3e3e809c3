"""A peer's identity in its certificate: a URI among its alternative names (SPIFFE ID and X.509-SVID, 2 and 5).

    spiffe://beamer/switch/<datapath id, 16 hex digits>
    spiffe://beamer/agent/<name of its host>
    spiffe://beamer/controller

A certificate has exactly one such name, and no other URI: what it is for is never a choice. That the authority has signed it
is checked by TLS before anything here sees it.
"""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from beamer.errors import InputError, PlatformError

PeerCertificate = Mapping[str, Any]
"""As `ssl.SSLObject.getpeercert()` returns it, empty or None if the peer showed none."""

TRUST_DOMAIN = "spiffe://beamer"
_SWITCH = re.compile(rf"{TRUST_DOMAIN}/switch/([0-9a-f]{{16}})")
_AGENT = re.compile(rf"{TRUST_DOMAIN}/agent/([A-Za-z0-9._-]+)")  # SPIFFE allows these characters in a path.


def switch_uri(dpid: int) -> str:
    """Return the identity of a switch."""
    return f"{TRUST_DOMAIN}/switch/{dpid:016x}"


def agent_uri(name: str) -> str:
    """Return the identity of a host's agent. Raises `InputError` if the name cannot stand in one."""
    uri = f"{TRUST_DOMAIN}/agent/{name}"
    if not _AGENT.fullmatch(uri):
        raise InputError("name", name, "letters, digits, '.', '_' and '-'")
    return uri


CONTROLLER_URI = f"{TRUST_DOMAIN}/controller"


def switch_of(certificate: PeerCertificate | None) -> int:
    """Return the datapath id that a certificate is for. Raises `InputError`."""
    return int(_the_part(certificate, _SWITCH, f"{TRUST_DOMAIN}/switch/<16 hex digits>"), 16)


def agent_of(certificate: PeerCertificate | None) -> str:
    """Return the name of the agent that a certificate is for. Raises `InputError`."""
    return _the_part(certificate, _AGENT, f"{TRUST_DOMAIN}/agent/<name>")


def mutual_tls(purpose: ssl.Purpose, certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return a context that shows a certificate and asks the peer for one of the same authority, in TLS 1.2 or newer.

    purpose: of the peer's certificate, `CLIENT_AUTH` for a server. Peers are told apart by the names above, not by host names.
    Raises `PlatformError` if a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if purpose is ssl.Purpose.CLIENT_AUTH else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(authority)
    except OSError as error:  # `ssl.SSLError` is an `OSError`.
        files = f"{certificate}, {key}, {authority}"
        raise PlatformError(f"cannot use the TLS files {files} ({error})", "give PEM files that belong together") from error
    return context


def require_mutual(context: ssl.SSLContext) -> None:
    """Raise `InputError` unless a context asks the peer for a certificate and speaks TLS 1.2 or newer only."""
    if context.verify_mode is not ssl.CERT_REQUIRED:
        raise InputError("tls.verify_mode", context.verify_mode.name, "CERT_REQUIRED: who a peer is comes from its certificate")
    if context.minimum_version < ssl.TLSVersion.TLSv1_2:
        raise InputError("tls.minimum_version", context.minimum_version.name, "TLSv1_2 or newer")


def _the_part(certificate: PeerCertificate | None, pattern: re.Pattern[str], expected: str) -> str:
    uri = _the_uri(certificate)
    if (found := pattern.fullmatch(uri)) is None:
        raise InputError("certificate", uri, expected)
    return found[1]


def _the_uri(certificate: PeerCertificate | None) -> str:
    uris = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
    if len(uris) != 1:
        raise InputError("certificate", uris, "exactly one URI among its alternative names")
    return str(uris[0])
