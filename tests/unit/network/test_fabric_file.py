"""The file of a network as people write it."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.fabric_file import parse_datapath_id, people_form, read_fabric
from beamer.testing.fabrics import star
from beamer.yaml_files import dump_yaml
from tests.support.checkout import ROOT
from topologies import dumbbell, fat_tree, leaf_spine, single

WRITTEN = """
name: rack
rate: 100gbit
hosts:
  - {name: h1, ip: 10.50.0.1, mac: 52-54-00-AA-00-01, agent: h1}
  - {name: h2, ip: 10.50.0.2, mac: "52:54:00:aa:00:02"}
switches:
  - {name: l1, dpid: 0000000000000010, agent: l1-agent}
cables:
  - ends: [{node: h1, interface: ens1}, {node: l1, interface: swp1, port: 1}]
  - ends: [{node: l1, interface: swp2, port: 2}, {node: h2, interface: ens1}]
    rate: 25gbit
"""


def read(tmp_path: Path, text: str) -> Fabric:
    path = tmp_path / "fabric.yaml"
    path.write_text(text)
    return read_fabric(path)


@pytest.mark.parametrize("dpid", ["000052540012e999", "00005254001210e5"])
def test_a_datapath_id_is_no_number_of_yaml(tmp_path: Path, dpid: str) -> None:
    assert read(tmp_path, WRITTEN.replace("0000000000000010", dpid)).switches[0].dpid == int(dpid, 16)


def test_the_file_of_the_documentation_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "network.md").read_text("utf-8")
    fabric = read(tmp_path, page[page.index("name: rack\n") :].partition("```")[0])
    assert (fabric.mtu, fabric.planes, fabric.switches[0].dpid, len(fabric.cables)) == (9000, 1, 0x10, 2)


def test_a_file_may_be_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        fabric = pool.submit(read_fabric, path)
        path.write_text(WRITTEN)
        assert fabric.result(10).name == "rack"


def test_a_file_has_each_cable_once(tmp_path: Path) -> None:
    fabric = read(tmp_path, WRITTEN)
    assert fabric.switches[0].dpid == 0x10
    assert [host.mac for host in fabric.hosts] == ["52:54:00:aa:00:01", "52:54:00:aa:00:02"]
    assert [(link.src, link.dst, link.rate_bps, link.port, link.interface) for link in fabric.links] == [
        ("h1", "l1", 100 * 10**9, 1, "ens1"),
        ("l1", "h1", 100 * 10**9, 1, "swp1"),
        ("l1", "h2", 25 * 10**9, 2, "swp2"),
        ("h2", "l1", 25 * 10**9, 1, "ens1"),
    ]


@pytest.mark.parametrize(
    "fabric",
    [
        single.build(3),
        dumbbell.build(rate="10gbit", trunk_rate="25gbit"),
        leaf_spine.build(leaves=2, spines=2, hosts_per_leaf=2, rate="100gbit"),
        fat_tree.build(),
        replace(star(2), switches=(replace(star(2).switches[0], dpid=2**64 - 1),)),
        replace(star(2), switches=(replace(star(2).switches[0], ovsdb="ssl:[fd00::5]:6640"),)),
    ],
    ids=lambda fabric: fabric.name,
)
def test_every_network_survives_either_form(tmp_path: Path, fabric: Fabric) -> None:
    assert read(tmp_path, dump_yaml(people_form(fabric))) == fabric
    assert read(tmp_path, json.dumps(people_form(fabric))) == fabric
    assert read(tmp_path, json.dumps(fabric.to_dict())) == fabric


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0x10", 16),
        ("0000000000000010", 16),
        ("00:00:00:00:00:00:00:10", 16),
        ("00000000000000aF", 0xAF),
        ("0000525400a1b2c3", 0x525400A1B2C3),
        ("000052540012e999", 0x52540012E999),
        ("16", 16),
        ("90520735306435", 90520735306435),
    ],
)
def test_datapath_ids_are_read_as_switches_print_them(text: str, number: int) -> None:
    assert parse_datapath_id(text) == number


@pytest.mark.parametrize(
    "text", ["1234567890123456", "010", "aF", "00:10", "0x", "0x1" + 16 * "0", "", "-1", "1.0", " 1", None, 16]
)
def test_a_datapath_id_that_may_be_two_numbers_is_refused(text: object) -> None:
    with pytest.raises(InputError, match=r"dpid: got .*, expected '0x10', 16 hexadecimal digits"):
        parse_datapath_id(text)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("100gbit", "100 Gb/s", r"fabric\.rate: got '100 Gb/s', expected a rate above 0 such as '20mbit'"),
        ("25gbit", "0", r"fabric\.cables\[1\]\.rate: got 0, expected a rate above 0"),
        ("rate: 100gbit\n", "", r"fabric\.cables\[0\]\.rate: got None, expected a rate such as '100gbit', here or once"),
        ("0000000000000010", "1234567890123456", r"fabric\.switches\[0\]\.dpid: got '1234567890123456', expected '0x10'"),
        ("0000000000000010", "0x0", r"fabric\.switches\[0\]\.dpid: got '0x0', expected greater than or equal to 1"),
        (", port: 2", "", r"fabric\.cables\[1\]\.ends\[0\]\.port: got None, expected the OpenFlow number of the port of l1"),
        (
            "{node: h2, interface: ens1}",
            "{node: h2, interface: ens1, port: 3}",
            r"cables\[1\]\.ends\[1\]\.port: got 3, .*no number",
        ),
        ("{node: h2, i", "{node: h9, i", r"fabric\.cables\[1\]\.ends\[1\]\.node: got 'h9', expected one of h1, h2, l1"),
        ("port: 2", "port: 1", r"fabric\.cables\[1\]\.ends\[0\]\.port: got \('l1', 1\), expected one that is not taken"),
        (
            "interface: swp2",
            "interface: swp1",
            r"cables\[1\]\.ends\[0\]\.interface: got 'swp1', expected a name that no other port of agent l1",
        ),
        ("swp2", 16 * "p", r"fabric\.cables\[1\]\.ends\[0\]\.interface: got 'p{16}', expected a name that Linux takes"),
        ("52:54:00:aa:00:02", "ff:ff:ff:ff:ff:ff", r"fabric\.hosts\[1\]\.mac: got 'ff:.*', expected a unicast MAC"),
        ("interface: swp1, ", "", r"fabric\.cables\[0\]\.ends\[1\]\.interface: got None, expected a value"),
        ("cables:", "cable:", r"fabric\.cable: got .*did you mean 'cables'"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_by_its_cable(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in WRITTEN
    with pytest.raises(InputError, match=said):
        read(tmp_path, WRITTEN.replace(before, after))


def test_a_switch_says_where_its_database_is_or_which_agent_makes_its_queues(tmp_path: Path) -> None:
    written = WRITTEN.replace("agent: l1-agent", 'ovsdb: "unix:/run/openvswitch/db.sock"')
    fabric = read(tmp_path, written)
    assert (fabric.switches[0].ovsdb, fabric.with_databases) == ("unix:/run/openvswitch/db.sock", {"l1"})
    with pytest.raises(
        InputError, match=r"fabric\.switches\[0\]\.ovsdb: got .* expected none beside agent l1-agent: one of the two"
    ):
        read(tmp_path, WRITTEN.replace("agent: l1-agent", "agent: l1-agent, ovsdb: 'ssl:10.0.0.5:6640'"))
    with pytest.raises(InputError, match=r"fabric\.switches\[0\]\.ovsdb: got 'leaf1', expected 'ssl:10\.0\.0\.5:6640'"):
        read(tmp_path, WRITTEN.replace("agent: l1-agent", "ovsdb: leaf1"))


def test_a_network_without_databases_is_written_as_before() -> None:
    fabric = star(2)
    assert list(fabric.to_dict()["switches"]) == [{"name": "s1", "dpid": 1, "agent": None}]
    assert people_form(fabric)["switches"] == [{"name": "s1", "dpid": "0x1"}]
