"""Networks in NetBox: read as they are documented, and what is wrong or missing is said of the record and its field."""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.fabric_sources.netbox import netbox_tables
from beamer.network.fabric_sources.rows import FabricSettings, fabric_of
from tests.support.fabric_sources import mutated, netbox_lists, page
from topologies import fat_tree, leaf_spine, single

Lists = dict[str, list[dict[str, Any]]]
RACK = single.build(hosts=2, rate="25gbit")
"""Hosts are devices 100 and 101, the switch is 102; interfaces 1000 and 1002 are the hosts', 1001 and 1003 the switch's."""


def read(lists: Lists, **options: Any) -> Fabric:
    tables = netbox_tables({name: [records] for name, records in lists.items()}, ["gpu-server"], ["switch"])
    return fabric_of(tables, FabricSettings(**{"name": RACK.name, **options}))


def changed(change: Callable[[Lists], Any], fabric: Fabric = RACK) -> Lists:
    lists = deepcopy(netbox_lists(fabric))
    change(lists)
    return lists


@pytest.mark.parametrize(
    "fabric",
    [leaf_spine.build(leaves=3, spines=2, rate="25gbit", uplink_rate="100gbit", mtu=9000), fat_tree.build(k=4)],
    ids=lambda fabric: fabric.name,
)
def test_a_documented_fabric_is_read_as_that_fabric(fabric: Fabric) -> None:
    assert read(netbox_lists(fabric), name=fabric.name, planes=fabric.planes, mtu=fabric.mtu) == fabric


def test_a_list_may_be_pages_or_their_records() -> None:
    lists = netbox_lists(RACK)
    pages: dict[str, list[Any]] = {name: [page(records)] for name, records in lists.items()}
    interfaces = lists["interfaces"]
    parts = [page(interfaces[:3], 4), page(interfaces[3:], 4)]
    for some in (pages, {**pages, "interfaces": parts}, {**pages, "interfaces": [parts]}):
        assert fabric_of(netbox_tables(some, ["gpu-server"], ["switch"]), FabricSettings(RACK.name)) == RACK


def unrelated(lists: Lists) -> None:
    """Add what is no part of the network: a device of another role, a planned cable, management, power."""
    by_name = {one["name"]: one for one in lists["devices"]}
    router = {**by_name["s1"], "id": 900, "name": "r1", "role": {"id": 9, "slug": "router"}}
    lists["devices"].append(router)
    port = lists["interfaces"][1]
    for number, device, more in (
        (901, 102, {}),
        (902, 900, {}),
        (903, 100, {"mgmt_only": True}),
        (904, 102, {}),
        (905, 101, {}),
    ):
        lists["interfaces"].append({**port, "id": number, "name": f"x{number}", "device": {"id": device}, **more})
    for number, a, b, status in ((1, 901, 902, "connected"), (2, 903, 904, "connected"), (3, 904, 905, "planned")):
        ends = {
            f"{end}_terminations": [{"object_type": "dcim.interface", "object_id": one}] for end, one in (("a", a), ("b", b))
        }
        lists["cables"].append({"id": number, **ends, "status": {"value": status}})
    power = {"a_terminations": [{"object_type": "dcim.powerport", "object_id": 1}], "b_terminations": []}
    lists["cables"].append({"id": 4, **power, "status": {"value": "connected"}})
    lists["ip-addresses"].append({**lists["ip-addresses"][0], "id": 906, "address": "fe80::1/64"})


def test_what_is_no_part_of_the_network_is_left_out() -> None:
    assert read(changed(unrelated)) == RACK


def test_further_addresses_of_an_interface_are_the_hosts() -> None:
    def further(lists: dict[str, list[dict[str, Any]]]) -> None:
        lists["ip-addresses"].append({**lists["ip-addresses"][0], "id": 906, "address": "2001:DB8:0::1/64"})

    assert read(changed(further)).hosts[0].addresses == ("2001:db8::1",)


def test_roles_of_older_versions_and_tags_tell_hosts_from_switches() -> None:
    def older(lists: Lists) -> None:
        for device in lists["devices"]:
            device["device_role"] = device.pop("role")
        lists["devices"][0] |= {"device_role": {"slug": "server"}, "tags": [{"id": 1, "name": "GPU", "slug": "gpu-server"}]}

    assert read(changed(older)) == RACK


def test_an_address_is_that_of_the_interface_or_the_primary_one() -> None:
    address = {"id": 9000, "address": "10.77.0.1/16"}

    def two(lists: Lists) -> None:
        lists["ip-addresses"].append({**lists["ip-addresses"][0], "id": 1, "address": "10.9.0.1/16"})
        lists["devices"][0]["primary_ip4"] = address

    def of_a_bond(lists: Lists) -> None:
        lists["interfaces"].append({**lists["interfaces"][0], "id": 50, "name": "bond0", "cable": None})
        lists["ip-addresses"][0]["assigned_object_id"] = 50
        lists["devices"][0]["primary_ip4"] = address

    def alone(lists: Lists) -> None:
        del lists["ip-addresses"][0]
        lists["devices"][0]["primary_ip4"] = address

    for change in (of_a_bond, alone):
        assert read(changed(change)) == RACK
    first, *others = RACK.hosts
    assert read(changed(two)) == replace(RACK, hosts=(replace(first, addresses=("10.9.0.1",)), *others))


def test_an_interface_has_its_address_as_newer_versions_have_it() -> None:
    def newer(lists: Lists) -> None:
        for interface in lists["interfaces"]:
            mac = interface.pop("mac_address")
            interface["primary_mac_address"] = mac and {"id": 1, "mac_address": mac}

    assert read(changed(newer)) == RACK


def test_a_path_over_a_patch_panel_is_one_cable() -> None:
    def patched(lists: Lists) -> None:
        (cable, *_), (host, port, *_) = lists["cables"], lists["interfaces"]
        lists["cables"].append({**cable, "id": 1, "b_terminations": [{"object_type": "dcim.frontport", "object_id": 1}]})
        cable["a_terminations"] = [{"object_type": "dcim.rearport", "object_id": 1}]
        for one, other in ((host, port), (port, host)):
            one |= {"connected_endpoints_type": "dcim.interface", "connected_endpoints": [{"id": other["id"], "name": "x"}]}

    found = read(changed(patched))
    assert set(found.links) == set(RACK.links)
    assert (found.hosts, found.switches) == (RACK.hosts, RACK.switches)


def test_a_speed_at_one_end_is_the_rate_and_one_at_none_is_asked_for() -> None:
    def at_one_end(lists: Lists) -> None:
        lists["interfaces"][0]["speed"] = None

    def at_none(lists: Lists) -> None:
        lists["interfaces"][0]["speed"] = lists["interfaces"][1]["speed"] = None

    assert read(changed(at_one_end)) == RACK
    assert read(changed(at_none), rate_bps=25 * 10**9) == RACK
    said = r"interfaces id 1000 \(h1 h1-eth0\): speed: got None, expected its operating speed in kbit/s, here, .* or by --rate"
    with pytest.raises(InputError, match=said):
        read(changed(at_none))


@pytest.mark.parametrize(
    ("name", "at", "value", "said"),
    [
        (
            "devices",
            (2, "custom_fields", "datapath_id"),
            None,
            r"devices id 102 \(s1\): custom_fields\.datapath_id: got None, expec",
        ),
        (
            "devices",
            (2, "custom_fields", "datapath_id"),
            "x",
            r"devices id 102 \(s1\): custom_fields\.datapath_id: got 'x', expected",
        ),
        (
            "devices",
            (2, "role"),
            {"slug": "router"},
            r"--switches: got 'switch', expected a role or a tag .*one of gpu-server, router",
        ),
        ("devices", (0, "name"), None, r"devices id 100 \(None\): name: got None, expected a name"),
        (
            "devices",
            (0, "tags"),
            [{"slug": "switch"}],
            r"devices id 100 \(h1\): role, tags: got \['gpu-server', 'switch'\], expected",
        ),
        ("devices", (1, "id"), 100, r"devices id 100: id: got 100, expected each record once"),
        ("devices", (1, "name"), "h1", r"devices id 101 \(h1\): name: got 'h1', expected another name: that of devices id 100"),
        (
            "interfaces",
            (3, "custom_fields"),
            {},
            r"interfaces id 1003 \(s1 s1-eth2\): custom_fields\.openflow_port: got None, expected",
        ),
        (
            "interfaces",
            (3, "custom_fields"),
            {"openflow_port": 1},
            r"id 1003 .*: custom_fields\.openflow_port: got \('s1', 1\), expec",
        ),
        (
            "interfaces",
            (0, "mac_address"),
            None,
            r"interfaces id 1000 \(h1 h1-eth0\): mac_address: got None, expected the MAC address",
        ),
        (
            "interfaces",
            (0, "speed"),
            1,
            r"interfaces id 1001 \(s1 s1-eth1\): speed: got 25000000, expected the speed at the other end, 1",
        ),
        ("interfaces", (0, "speed"), "fast", r"interfaces id 1000: speed: got 'fast', expected a whole number"),
        (
            "interfaces",
            (0, "device"),
            {"id": 7},
            r"interfaces id 1000 \(h1-eth0\): device\.id: got 7, expected the id of a device",
        ),
        (
            "interfaces",
            (0, "id"),
            77,
            r"cables id 5000: a_terminations\[0\]\.object_id: got 1000, expected the id of an interface",
        ),
        ("cables", (0, "a_terminations"), [], r"cables id 5000: a_terminations: got 0, expected one interface at each end"),
        (
            "cables",
            (1, "b_terminations", 0, "object_id"),
            1001,
            r"id 1001 .*: custom_fields\.openflow_port: got \('s1', 1\), expected one",
        ),
        (
            "cables",
            (0, "b_terminations", 0, "object_type"),
            "dcim.frontport",
            r"id 1000 .*: connected_endpoints: got \[\], expected one",
        ),
        ("cables", (0, "status"), {"value": "planned"}, r"devices id 100 \(h1\): interfaces: got \[\], expected one interface"),
        ("cables", (0, "b_terminations"), None, r"cables id 5000: b_terminations: got None, expected"),
        (
            "ip-addresses",
            (0, "address"),
            "10.77.0/16",
            r"interfaces id 1000 \(h1 h1-eth0\): address: got '10.77.0', expected an address",
        ),
        (
            "ip-addresses",
            (0, "assigned_object_id"),
            None,
            r"interfaces id 1000 \(h1 h1-eth0\): address: got None, expected an IPv4 add",
        ),
        (
            "ip-addresses",
            (0, "assigned_object_id"),
            1002,
            r"id 1002 .*: address: got \['10.77.0.1/16', '10.77.0.2/16'\], expected one IPv4",
        ),
    ],
)
def test_what_is_wrong_with_a_record_is_said_of_its_field(name: str, at: tuple[Any, ...], value: Any, said: str) -> None:
    lists = netbox_lists(RACK)
    holder: Any = lists[name]
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = value
    with pytest.raises(InputError, match=said):
        read(lists)


def test_a_breakout_cable_is_refused() -> None:
    lists = netbox_lists(RACK)
    lists["cables"][0]["b_terminations"] += lists["cables"][1]["b_terminations"]
    with pytest.raises(
        InputError, match=r"cables id 5000: b_terminations: got 2, expected one interface at each end; a breakout"
    ):
        read(lists)


def test_a_primary_address_of_another_port_is_no_address_of_this_one() -> None:
    def managed(lists: Lists) -> None:
        lists["interfaces"].append({**lists["interfaces"][0], "id": 50, "name": "mgmt0", "mgmt_only": True})
        lists["ip-addresses"][0]["assigned_object_id"] = 50
        lists["devices"][0]["primary_ip4"] = {"id": 9000, "address": "10.77.0.1/16"}

    with pytest.raises(InputError, match=r"devices id 100 \(h1\): primary_ip4: got '10.77.0.1/16', .* h1-eth0; .* mgmt0"):
        read(changed(managed))


@pytest.mark.parametrize(
    ("cables", "said"),
    [
        ([page([], 2)], r"cables: results: got 0, expected all 2 records that NetBox counts: every page"),
        ([{"detail": "Invalid token"}], r"cables: results: got \['detail'\], expected a page of NetBox's REST API"),
        (["cables"], r"cables: got 'cables', expected pages of NetBox's REST API"),
        ([[3]], r"cables\[0\]: got 3, expected"),
        ([], r"devices id 100 \(h1\): interfaces: got \[\], expected one interface with a cable to a switch"),
    ],
)
def test_a_list_that_is_cut_off_or_no_list_is_named(cables: list[Any], said: str) -> None:
    pages: dict[str, list[Any]] = {name: [records] for name, records in netbox_lists(RACK).items()}
    with pytest.raises(InputError, match=said):
        netbox_tables({**pages, "cables": cables}, ["gpu-server"], ["switch"])


def test_roles_have_to_be_given_and_known() -> None:
    pages = {name: [records] for name, records in netbox_lists(RACK).items()}
    with pytest.raises(
        InputError, match=r"--hosts: got None, expected the slug of a role or a tag .* one of gpu-server, switch"
    ):
        netbox_tables(pages, [], ["switch"])
    with pytest.raises(InputError, match=r"--switches: got 'swich', expected .*did you mean 'switch'"):
        netbox_tables(pages, ["gpu-server"], ["swich"])


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_a_record_has_ends_in_a_network_or_in_one_error(data: st.DataObject) -> None:
    lists = netbox_lists(RACK)
    name = data.draw(st.sampled_from(sorted(lists)))
    with suppress(InputError):  # Any other error fails the test.
        read({**lists, name: mutated(lists[name], data.draw)})
