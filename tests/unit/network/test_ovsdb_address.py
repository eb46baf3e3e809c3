"""Where databases are, as files have it."""

import pytest

from beamer.errors import InputError
from beamer.network.ovsdb_address import OvsdbAddress, parse_ovsdb_address


@pytest.mark.parametrize(
    ("text", "address", "is_local"),
    [
        ("ssl:10.0.0.5:6640", OvsdbAddress("ssl", "10.0.0.5", 6640), False),
        ("tcp:127.0.0.1:6640", OvsdbAddress("tcp", "127.0.0.1", 6640), True),
        ("tcp:[fd00::1]:1", OvsdbAddress("tcp", "fd00::1", 1), False),
        ("ssl:[::1]:65535", OvsdbAddress("ssl", "::1", 65535), True),
        ("unix:/run/openvswitch/db.sock", OvsdbAddress("unix", "/run/openvswitch/db.sock"), True),
    ],
)
def test_addresses_are_read_as_open_vswitch_writes_them(text: str, address: OvsdbAddress, is_local: bool) -> None:
    found = parse_ovsdb_address(text, "ovsdb")
    assert (found, found.is_local) == (address, is_local)


@pytest.mark.parametrize(
    "text",
    [
        *("", "10.0.0.5:6640", "ssl:10.0.0.5", "ssl:10.0.0.5:0", "ssl:10.0.0.5:65536", "ssl:10.0.0.500:6640"),
        *(
            "tcp:fd00::1:6640",
            "tcp:leaf1.example:6640",
            "tcp:[10.0.0.5]:6640",
            "unix:db.sock",
            f"unix:/{'a' * 107}",
            "ptcp:6640",
            "tcp:[::]x:1",
        ),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"fabric\.switches\[0\]\.ovsdb: got .*, expected 'ssl:10\.0\.0\.5:6640'"):
        parse_ovsdb_address(text, "fabric.switches[0].ovsdb")
