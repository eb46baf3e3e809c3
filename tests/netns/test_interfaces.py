"""The interfaces that an agent names are those of its network namespace, as `ip` shows them."""

import json

import pytest

from hostagent.interfaces import interfaces
from tests.support.namespaces import cabled_namespaces

pytestmark = pytest.mark.netns


def test_interfaces_are_named_as_the_system_shows_them() -> None:
    with cabled_namespaces("a", "b") as (first, _):
        first.run("ip", "link", "add", "plain", "type", "bridge")
        first.run("ip", "link", "add", "port", "type", "veth", "peer", "name", "guest")
        first.run("ip", "link", "set", "port", "master", "plain")
        first.run("ip", "link", "add", "link", "data", "name", "upper", "type", "macvlan")
        first.run("ip", "link", "set", "data", "mtu", "9000")
        for address in ("10.77.3.1/24", "fd00:77::1/64"):
            first.run("ip", "address", "add", address, "dev", "data")
        first.run("sysctl", "-q", "-w", "net.ipv6.conf.data.use_tempaddr=2")
        first.run("ip", "address", "add", "fd00:78::1/64", "dev", "data", "mngtmpaddr", "nodad")
        found = {one.name: one for one in first.call(interfaces)}
        shown = {link["ifname"]: link for link in json.loads(first.run("ip", "-j", "-details", "address"))}
        ethernet = {name for name, link in shown.items() if link["link_type"] == "ether"}
        assert {"data", "plain"} <= ethernet
        assert found.keys() == ethernet
        for name, one in found.items():
            link = shown[name]
            assert (one.mac, one.mtu) == (link["address"], link["mtu"])
            assert one.kind == link.get("linkinfo", {}).get("info_kind", "")
            members = [member["ifname"] for member in shown.values() if member.get("master") == name]
            assert [member.name for member in one.members] == members
            assert [member.mac for member in one.members] == [shown[member]["address"] for member in members]
            assert (one.mode, one.parent, one.vlan_id) == ("", "data" if name == "upper" else None, None)
            lasting = [part["local"] for part in link["addr_info"] if part["scope"] == "global" and "temporary" not in part]
            assert list(one.addresses) == lasting
        assert (found["plain"].kind, len(found["plain"].members)) == ("bridge", 1)
        assert any("temporary" in part for part in shown["data"]["addr_info"]), "one that the kernel replaces"
        assert next(iter(found)) == "data", "those with addresses come first"
