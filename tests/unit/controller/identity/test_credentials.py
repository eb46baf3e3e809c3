"""Which databases of switches a controller may connect to."""

import ssl
from dataclasses import replace

import pytest

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.testing.fabrics import star
from controller.identity.credentials import NO_CREDENTIALS, Credentials, check_databases

WITH_TLS = Credentials(databases=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
OPENFLOW = "10.0.0.1:6653"


def at(address: str) -> Fabric:
    return replace(star(2), switches=(replace(star(2).switches[0], ovsdb=address),))


@pytest.mark.parametrize(
    ("address", "openflow", "credentials", "insecure", "expected"),
    [
        (
            "ssl:10.0.0.5:6640",
            OPENFLOW,
            NO_CREDENTIALS,
            False,
            "--tls-cert, --tls-key and --tls-ca, by which the two know each other",
        ),
        ("ssl:127.0.0.1:6640", OPENFLOW, NO_CREDENTIALS, True, "--tls-cert, --tls-key and --tls-ca"),
        ("tcp:10.0.0.5:6640", OPENFLOW, WITH_TLS, False, "ssl: instead of tcp:, a loopback address, or --insecure"),
        ("unix:/run/db", None, WITH_TLS, True, "none with --openflow none: only rules choose the queues"),
    ],
)
def test_a_database_that_is_of_no_use_or_open_to_others_is_refused(
    address: str, openflow: str | None, credentials: Credentials, insecure: bool, expected: str
) -> None:
    with pytest.raises(InputError, match=r"fabric\.switches\[0\]\.ovsdb") as refused:
        check_databases(at(address), openflow, credentials, insecure)
    assert refused.value.expected.startswith(expected)


@pytest.mark.parametrize(
    ("address", "credentials", "insecure"),
    [
        ("ssl:10.0.0.5:6640", WITH_TLS, False),
        ("tcp:10.0.0.5:6640", NO_CREDENTIALS, True),
        ("tcp:127.0.0.1:6640", NO_CREDENTIALS, False),
        ("unix:/run/db", NO_CREDENTIALS, False),
    ],
)
def test_others_are_taken(address: str, credentials: Credentials, insecure: bool) -> None:
    check_databases(at(address), OPENFLOW, credentials, insecure)
    check_databases(star(2), None, NO_CREDENTIALS, False)
