"""Any address of a host is the host: in targets, in what an agent may report, in the names that trainers give."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from beamer.network.connection import Connection
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star
from controller.commands.fabric import lines
from controller.http.host_names import HostNames
from controller.network.targets import TargetBuilder
from controller.ownership import Ownership

PLAIN = star(3)
FURTHER: Mapping[str, tuple[str, ...]] = {"h1": ("fd00::1", "10.50.1.1"), "h2": ("fd00::2",), "h3": ()}
FABRIC = replace(PLAIN, hosts=tuple(replace(host, addresses=FURTHER[host.name]) for host in PLAIN.hosts))
FIRST = tuple(host.ip for host in PLAIN.hosts)


@pytest.mark.parametrize(
    ("local", "remote", "crosses"),
    [
        ("fd00::1", "fd00::2", True),
        ("10.50.1.1", FIRST[2], True),
        ("fd00::1", "10.50.1.1", False),
        (FIRST[0], "10.50.1.1", False),
        ("fd00::1", "fd00::1", False),
        ("fd00::1", "fd00::99", False),
    ],
)
def test_a_connection_has_a_class_where_its_ends_are_two_hosts(local: str, remote: str, crosses: bool) -> None:
    assert TargetBuilder(FABRIC)._crosses(Connection("s/t", 0, local, 1, remote, 2)) == crosses


def test_agents_are_told_every_address_and_which_of_them_are_one_host() -> None:
    told = TargetBuilder(FABRIC)._assignment("h1", 8)
    assert told.addresses == (*FIRST, "fd00::1", "10.50.1.1", "fd00::2")
    assert told.own_addresses == ((FIRST[0], "fd00::1", "10.50.1.1"),)
    assert TargetBuilder(FABRIC)._assignment("h3", 8).own_addresses == ()
    plain = TargetBuilder(PLAIN)._assignment("h1", 8)
    assert (plain.addresses, plain.own_addresses) == (FIRST, ())


def test_an_agent_reports_connections_of_any_address_of_its_host() -> None:
    own = Ownership(FABRIC, Tracker())
    for local in (FIRST[0], *FURTHER["h1"]):
        assert own.is_local("h1", Connection("s/t", 0, local, 1, "fd00::2", 2))
        assert not own.is_local("h2", Connection("s/t", 0, local, 1, "fd00::2", 2))


def test_they_are_shown() -> None:
    shown = list(lines(FABRIC))
    assert shown[1].endswith("agent h1  fd00::1 10.50.1.1")
    assert shown[3].endswith("agent h3")
    assert shown[4:] == list(lines(PLAIN))[4:]


@pytest.mark.parametrize("given", ["fd00::1", "FD00:0::01", "10.50.1.1", FIRST[0]])
def test_a_trainer_may_name_a_host_by_any_address(given: str) -> None:
    assert HostNames(FABRIC).find(given, (), (), "host") == "h1"
    assert HostNames(FABRIC).find("localhost", ("localhost",), ("fd00::2", "192.0.2.1"), "host") == "h2"
