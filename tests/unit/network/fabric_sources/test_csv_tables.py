"""Networks in CSV tables: read back as they are, and what is wrong with a table is said of its line and column."""

import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.fabric_sources.csv_tables import CABLES, NODES, csv_tables
from beamer.network.fabric_sources.rows import CABLE_COLUMNS, NODE_COLUMNS, FabricSettings, fabric_of
from tests.support.fabric_sources import csv_texts
from topologies import fat_tree, leaf_spine

TABLES = {
    NODES: """name,kind,ip,mac,dpid,agent
h1,host,10.50.0.1,52-54-00-AA-00-01,,h1
h2,host,10.50.0.2,52:54:00:aa:00:02,,

l1,switch,,,0000000000000010,l1-agent
""",
    CABLES: """rate,a_node,a_interface,a_port,b_node,b_interface,b_port
100gbit,h1,ens1,,l1,swp1,1
,l1,swp2,2,h2,ens1,
""",
}


def read(texts: dict[str, str], **options: int | str) -> Fabric:
    return fabric_of(csv_tables(texts), FabricSettings(**{"name": "rack", "rate_bps": 25 * 10**9, **options}))


@pytest.mark.parametrize(
    "fabric",
    [leaf_spine.build(leaves=3, spines=2, rate="25gbit", uplink_rate="100gbit", mtu=9000), fat_tree.build(k=4)],
    ids=lambda fabric: fabric.name,
)
def test_tables_of_a_fabric_are_read_as_that_fabric(fabric: Fabric) -> None:
    chosen = FabricSettings(fabric.name, None, fabric.planes, fabric.mtu)
    assert fabric_of(csv_tables(csv_texts(fabric)), chosen) == fabric


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_columns_may_stand_in_any_order(chance: random.Random) -> None:
    fabric = leaf_spine.build(leaves=2, spines=2)
    columns = [chance.sample(names, len(names)) for names in (NODE_COLUMNS, CABLE_COLUMNS)]
    assert fabric_of(csv_tables(csv_texts(fabric, *columns)), FabricSettings(fabric.name, None, 2)) == fabric


def test_cells_may_be_empty_and_a_cable_without_a_rate_has_that_of_all() -> None:
    fabric = read(TABLES)
    assert [(host.mac, host.agent) for host in fabric.hosts] == [("52:54:00:aa:00:01", "h1"), ("52:54:00:aa:00:02", None)]
    assert [(link.src, link.port, link.rate_bps) for link in fabric.links] == [
        ("h1", 1, 100 * 10**9),
        ("l1", 1, 100 * 10**9),
        ("l1", 2, 25 * 10**9),
        ("h2", 1, 25 * 10**9),
    ]


def test_what_spreadsheets_write_is_read() -> None:
    quoted = TABLES[NODES].replace("h1,host", '"h1",  host ').replace("\n", "\r\n") + ",,,,,\r\n"
    assert read({**TABLES, NODES: "\ufeff" + quoted}) == read(TABLES)


@pytest.mark.parametrize("ends", [(",", ",", ","), (",,,", "", ",,"), (", ,", ",,,,", ",")])
def test_empty_columns_at_the_end_are_none(ends: tuple[str, str, str]) -> None:
    texts = {}
    for table, text in TABLES.items():
        lines = text.splitlines()
        texts[table] = "\n".join(line + ends[min(i, 2)] for i, line in enumerate(lines))
    assert read(texts) == read(TABLES)


def test_a_column_without_a_name_before_another_is_refused() -> None:
    with pytest.raises(InputError, match=r"nodes\.csv: column 5: got '', expected its name, one of name, kind, ip"):
        read({**TABLES, NODES: TABLES[NODES].replace("dpid,", ",dpid,")})


@pytest.mark.parametrize("separator", [";", "\t"])
def test_columns_that_are_separated_otherwise_are_refused(separator: str) -> None:
    with pytest.raises(InputError, match=r"cables\.csv: got 'rate.*', expected columns that are separated by commas, not by"):
        read({**TABLES, CABLES: TABLES[CABLES].replace(",", separator)})


@pytest.mark.parametrize(
    ("table", "before", "after", "said"),
    [
        # of a whole table
        (NODES, TABLES[NODES], "\n", r"nodes\.csv: got '', expected a first line with the columns name, kind, ip"),
        (CABLES, "b_node", "b_nod", r"cables\.csv: b_nod: got 'b_nod', expected one of .*did you mean 'b_node'"),
        (CABLES, ",b_port", ",a_port", r"cables\.csv: a_port: got 'a_port', expected each column once"),
        (NODES, "name,kind,", "name,agent,", r"nodes\.csv: agent: got 'agent', expected each column once"),
        (CABLES, "1\n,l1,swp2,2,h2,ens1,\n", '1\n"x', r"cables\.csv line 3: .* valid CSV \(unexpected end of data\)"),
        # of a line
        (CABLES, "swp1,1", "swp1", r"cables\.csv line 2: got 6, expected 7 cells"),
        (CABLES, "swp1,1\n", "swp1,1,,x\n", r"cables\.csv line 2: got 9, expected 7 cells"),
        (CABLES, "swp2,2", "swp2,", r"cables\.csv line 3: a_port: got None, expected the OpenFlow number of the switch's port"),
        (CABLES, "swp2,2", "swp2,two", r"cables\.csv line 3: a_port: got 'two', expected a whole number"),
        (CABLES, "swp2,2", "swp2,0", r"cables\.csv line 3: a_port: got 0, expected greater than or equal to 1"),
        (CABLES, "swp2,2", "swp2,99999999999", r"cables\.csv line 3: a_port: got '99999999999', expected a whole number"),
        (CABLES, "swp2,2", "swp2,1", r"cables\.csv line 3: a_port: got \('l1', 1\), expected one that is not taken"),
        (CABLES, "ens1,\n", "ens1,4\n", r"cables\.csv line 3: b_port: got 4, expected no number: the port of a host"),
        (CABLES, "h2,ens1", "h9,ens1", r"cables\.csv line 3: b_node: got 'h9', expected one of h1, h2, l1"),
        (CABLES, "h2,ens1", "h2,", r"cables\.csv line 3: b_interface: got None, expected the name of the port"),
        (CABLES, "h2,ens1", "h1,ens1", r"cables\.csv line 3: b_node: got 'h1', expected another node: cables\.csv line 2 "),
        (CABLES, "swp2", "swp1", r"cables\.csv line 3: a_interface: got 'swp1', expected a name that no other port of agent"),
        (CABLES, "100gbit", "fast", r"cables\.csv line 2: rate: got 'fast', expected a rate above 0"),
        (CABLES, ",l1,swp2,2,h2,ens1,\n", "", r"nodes\.csv line 3: got 'h2', expected a host with exactly one link"),
        (NODES, "h2,host", ",host", r"nodes\.csv line 3: name: got None, expected a name"),
        (NODES, "h2,host", "h2,hots", r"nodes\.csv line 3: kind: got 'hots', expected one of host, switch \(did you mean"),
        (NODES, "h2,host", "h2,", r"nodes\.csv line 3: kind: got None, expected 'host' or 'switch'"),
        (NODES, "h2,host", "h1,host", r"nodes\.csv line 3: name: got 'h1', expected another name: that of nodes"),
        (NODES, "10.50.0.2", "", r"nodes\.csv line 3: ip: got None, expected the address"),
        (NODES, "10.50.0.2", "10.50.0.256", r"nodes\.csv line 3: ip: got '10.50.0.256', expected an address such as"),
        (NODES, "52:54:00:aa:00:02", "", r"nodes\.csv line 3: mac: got None, expected the MAC address"),
        (NODES, "52:54:00:aa:00:02", "ff:ff:ff:ff:ff:ff", r"nodes\.csv line 3: mac: got 'ff:.*', expected a unicast MAC"),
        (NODES, "0000000000000010", "", r"nodes\.csv line 5: dpid: got None, expected the datapath id of the switch"),
        (NODES, "0000000000000010", "ten", r"nodes\.csv line 5: dpid: got 'ten', expected '0x10', 16 hexadecimal digits"),
        (NODES, "l1,switch,,", "l1,switch,10.0.0.1,", r"nodes\.csv line 5: ip: got '10.0.0.1', expected no value, as a switch"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_of_its_line_and_column(table: str, before: str, after: str, said: str) -> None:
    assert before in TABLES[table]
    with pytest.raises(InputError, match=said):
        read({**TABLES, table: TABLES[table].replace(before, after)})


def test_a_cable_without_any_rate_is_named() -> None:
    with pytest.raises(
        InputError, match=r"cables\.csv line 3: rate: got None, expected a rate such as '100gbit', here or by --rate"
    ):
        fabric_of(csv_tables(TABLES), FabricSettings("rack"))


@pytest.mark.parametrize("table", [NODES, CABLES])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_a_table_has_ends_in_a_network_or_in_one_error(table: str, data: st.DataObject) -> None:
    text = TABLES[table]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    piece = data.draw(st.text(st.sampled_from('ahls0129:,-."\n '), max_size=6) | st.text(max_size=3))
    with suppress(InputError):  # Any other error fails the test.
        read({**TABLES, table: text[:start] + piece + text[end:]})
