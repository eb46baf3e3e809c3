"""How the controller authenticates itself and its peers, and where it need not: on loopback addresses alone.

Whoever reaches a port without credentials may register studies there, or claim to be a switch or an agent.
"""

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.ovsdb_address import parse_ovsdb_address
from controller.address import parse_address
from controller.identity.certificates import mutual_tls
from controller.identity.tokens import TokenKey, read_key

_TLS_OPTIONS = "--tls-cert, --tls-key and --tls-ca"


@dataclass(frozen=True)
class Credentials:
    """The credentials of a controller. http, switches: contexts; None: plain text. tokens: None: none is asked for.

    databases: how it connects to databases of switches; None: by TLS to none.
    """

    http: ssl.SSLContext | None = None
    switches: ssl.SSLContext | None = None
    tokens: TokenKey | None = None
    databases: ssl.SSLContext | None = None


NO_CREDENTIALS = Credentials()


def read_credentials(cert: Path | None, key: Path | None, ca: Path | None, token_key: Path | None) -> Credentials:
    """Read the files of credentials, of which those of TLS are given together or not at all.

    Raises `InputError`, and `PlatformError` if TLS cannot use its files.
    """
    tokens = None if token_key is None else read_key(token_key, "--token-key")
    if cert is None and key is None and ca is None:
        return Credentials(tokens=tokens)
    if cert is None or key is None or ca is None:
        missing = "--tls-cert" if cert is None else "--tls-key" if key is None else "--tls-ca"
        raise InputError(missing, None, f"a file: {_TLS_OPTIONS} belong together")
    http, switches = (mutual_tls(ssl.Purpose.CLIENT_AUTH, cert, key, ca) for _ in range(2))
    http.verify_mode = ssl.CERT_OPTIONAL  # Trainers come with tokens; agents are asked for a certificate later.
    return Credentials(http, switches, tokens, mutual_tls(ssl.Purpose.SERVER_AUTH, cert, key, ca))


def check_exposure(http: str, openflow: str | None, credentials: Credentials) -> None:
    """Raise `InputError` if an address is reached from other machines and lacks its credentials. openflow: if there is one."""
    _check_reached("--http", http, bool(credentials.http and credentials.tokens), f"{_TLS_OPTIONS}, and --token-key")
    if openflow is not None:
        _check_reached("--openflow", openflow, credentials.switches is not None, _TLS_OPTIONS)


def check_databases(fabric: Fabric, openflow: str | None, credentials: Credentials, insecure: bool) -> None:
    """Raise `InputError` if a switch's database cannot be used, or by others than this controller, too.

    openflow: the address that switches connect to, None where there is none.
    """
    for i, switch in enumerate(fabric.switches):
        if switch.ovsdb is None:
            continue
        field = f"fabric.switches[{i}].ovsdb"
        address = parse_ovsdb_address(switch.ovsdb, field)
        if openflow is None:
            raise InputError(field, switch.ovsdb, "none with --openflow none: only rules choose the queues that it makes")
        if address.scheme == "ssl" and credentials.databases is None:
            raise InputError(field, switch.ovsdb, f"{_TLS_OPTIONS}, by which the two know each other (docs/operate.md)")
        if address.scheme == "tcp" and not address.is_local and not insecure:
            expected = "ssl: instead of tcp:, a loopback address, or --insecure to let whoever is on the way change queues"
            raise InputError(field, switch.ovsdb, expected)


def check_encrypted(http: str, openflow: str, credentials: Credentials) -> None:
    """Raise `InputError` if an address is reached from other machines and whoever connects needs no certificate."""
    for field, address in (("--http", http), ("--openflow", openflow)):
        _check_reached(field, address, credentials.switches is not None, _TLS_OPTIONS)


def _check_reached(field: str, address: str, complete: bool, needed: str) -> None:
    if not complete and not is_loopback(parse_address(address, field)[0]):
        expected = f"a loopback address, or {needed} (docs/operate.md), or --insecure to let whoever reaches it in"
        raise InputError(field, address, expected)


def is_loopback(host: str) -> bool:
    """Return whether nothing but this machine reaches a host's addresses, all of them; False for one that has none."""
    try:
        found = {str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)
