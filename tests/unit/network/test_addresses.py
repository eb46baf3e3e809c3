"""Further addresses of hosts: what a fabric and its file take, and that they come back as they were."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.fabric_checks import check_deployable
from beamer.network.fabric_file import deployable, people_form, read_fabric
from beamer.network.fabric_sources.csv_tables import CABLES, NODES, csv_tables
from beamer.network.fabric_sources.rows import FabricSettings, fabric_of
from beamer.testing.fabrics import star
from beamer.yaml_files import dump_yaml

PLAIN = star(3)


def with_addresses(*of_hosts: tuple[str, ...]) -> Fabric:
    hosts = (*of_hosts, (), (), ())[: len(PLAIN.hosts)]
    return replace(PLAIN, hosts=tuple(replace(one, addresses=more) for one, more in zip(PLAIN.hosts, hosts, strict=True)))


FABRIC = with_addresses(("fd00::1", "10.50.1.1"), ("fd00::2",))


def test_any_address_names_its_host() -> None:
    assert {address: FABRIC.hosts[i].name for address, i in FABRIC.position_at.items()} == {
        **{host.ip: host.name for host in FABRIC.hosts},
        "fd00::1": "h1",
        "10.50.1.1": "h1",
        "fd00::2": "h2",
    }
    assert FABRIC.has_ipv6
    assert not with_addresses(("10.50.1.1",)).has_ipv6


def test_both_forms_keep_them_and_a_network_without_any_is_written_as_before() -> None:
    assert Fabric.from_dict(json.loads(json.dumps(FABRIC.to_dict()))) == FABRIC
    assert deployable(people_form(FABRIC)) == FABRIC
    assert people_form(FABRIC)["hosts"][0]["addresses"] == ["fd00::1", "10.50.1.1"]
    for form in (PLAIN.to_dict(), people_form(PLAIN)):
        assert all("addresses" not in host for host in form["hosts"])


def test_people_may_write_them_in_any_form() -> None:
    form = people_form(PLAIN)
    form["hosts"][0]["addresses"] = ["FD00:0:0::0001"]
    assert deployable(form).hosts[0].addresses == ("fd00::1",)


def test_a_file_has_them_as_plain_text(tmp_path: Path) -> None:
    text = dump_yaml(people_form(PLAIN)).replace("agent: h1\n", "agent: h1\n  addresses: [fd00::1, 10.50.1.1]\n")
    (tmp_path / "fabric.yaml").write_text(text)
    assert read_fabric(tmp_path / "fabric.yaml").hosts[0].addresses == ("fd00::1", "10.50.1.1")
    (tmp_path / "fabric.yaml").write_text(text.replace("fd00::1", "1:2:3:4:5:6:7:8"))  # YAML takes it for a number.
    with pytest.raises(InputError, match=r"hosts\[0\]\.addresses\[0\]"):
        read_fabric(tmp_path / "fabric.yaml")


@pytest.mark.parametrize(
    ("of_hosts", "field", "value"),
    [
        ((("fd00::1",), ("fd00::1",)), "hosts[1].addresses[0]", "fd00::1"),
        ((("fd00::1", "fd00::1"),), "hosts[0].addresses[1]", "fd00::1"),
        (((PLAIN.hosts[2].ip,),), "hosts[0].addresses[0]", PLAIN.hosts[2].ip),
        (((PLAIN.hosts[0].ip,),), "hosts[0].addresses[0]", PLAIN.hosts[0].ip),
        (((), ("FD00::1",)), "hosts[1].addresses[0]", "FD00::1"),
        ((("fd00::1/64",),), "hosts[0].addresses[0]", "fd00::1/64"),
        ((("fd00::1%eth0",),), "hosts[0].addresses[0]", "fd00::1%eth0"),
        (((), (), ("h1",)), "hosts[2].addresses[0]", "h1"),
        ((tuple(f"fd00::{i:x}" for i in range(1, 66)),), "hosts[0].addresses", "65"),
    ],
)
def test_no_fabric_takes_them(of_hosts: tuple[tuple[str, ...], ...], field: str, value: str) -> None:
    with pytest.raises(InputError) as caught:
        with_addresses(*of_hosts)
    assert (caught.value.field, str(caught.value.value)) == (f"fabric.{field}", value)


@pytest.mark.parametrize(
    "address",
    ["ff02::1", "::1", "::", "fe80::1", "::ffff:102:304", "::102:304", "224.0.0.1", "127.0.0.2", "169.254.0.1", "240.0.0.1"],
)
def test_no_controller_takes_what_is_not_of_one_interface(address: str) -> None:
    with pytest.raises(InputError, match=rf"fabric\.hosts\[1\]\.addresses\[1\].*{address}"):
        check_deployable(with_addresses((), ("fd00::1", address)))
    check_deployable(FABRIC)


def test_the_first_one_is_of_either_family() -> None:
    assert replace(PLAIN, hosts=(replace(PLAIN.hosts[0], ip="fd00::1"), *PLAIN.hosts[1:])).hosts[0].ip == "fd00::1"


def test_tables_have_them_with_spaces_between() -> None:
    nodes = (
        "name,kind,ip,mac,dpid,addresses\nh1,host,10.0.0.1,52:54:00:aa:00:01,,fd00::1 10.1.0.1\n"
        "h2,host,10.0.0.2,52:54:00:aa:00:02,,\nl1,switch,,,0x10,\n"
    )
    cables = "a_node,a_interface,b_node,b_interface,b_port\nh1,e,l1,p1,1\nh2,e,l1,p2,2\n"

    def made(nodes: str) -> Fabric:
        return fabric_of(csv_tables({NODES: nodes, CABLES: cables}), FabricSettings("n", 10**9))

    assert [host.addresses for host in made(nodes).hosts] == [("fd00::1", "10.1.0.1"), ()]
    with pytest.raises(InputError, match=r"nodes\.csv line 2: addresses.*fe80::1"):
        made(nodes.replace("fd00::1", "fe80::1"))
