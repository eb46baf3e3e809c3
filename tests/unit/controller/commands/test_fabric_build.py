"""`beamer fabric build`: a file that a controller reads, from each source, or one line that says what to add."""

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from beamer.cli import main
from beamer.errors import InputError
from beamer.network.fabric import Fabric
from beamer.network.fabric_file import read_fabric
from controller.commands.fabric import put_out
from tests.support.commands import run_here
from tests.support.fabric_sources import csv_texts, graph_of, netbox_lists, page
from topologies import leaf_spine

FABRIC = leaf_spine.build(leaves=2, spines=2, hosts_per_leaf=2, rate="25gbit", mtu=9000)
SHAPE = ("--name", FABRIC.name, "--planes", "2", "--mtu", "9000")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    directory = tmp_path / "rack"
    directory.mkdir()
    for name, text in csv_texts(FABRIC).items():
        (directory / name).write_text(text)
    return directory


def written(tmp_path: Path, text: str) -> Fabric:
    path = tmp_path / "fabric.yaml"
    path.write_text(text)
    return read_fabric(path)


def test_tables_become_a_file_that_is_printed_or_written(tables: Path, tmp_path: Path) -> None:
    done = run_here(main, "fabric", "build", "--csv", str(tables), *SHAPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert written(tmp_path, done.stdout) == FABRIC
    output = tmp_path / "new" / "fabric.yaml"
    silent = run_here(main, "fabric", "build", "--csv", str(tables), *SHAPE, "--output", str(output))
    assert (silent.returncode, silent.stdout) == (0, "")
    assert output.read_text() == done.stdout


def test_without_options_a_network_is_called_as_its_directory(tables: Path, tmp_path: Path) -> None:
    fabric = written(tmp_path, run_here(main, "fabric", "build", "--csv", str(tables)).stdout)
    assert (fabric.name, fabric.planes, fabric.mtu) == ("rack", 1, 1500)


def test_what_a_source_lacks_is_one_line(tables: Path, tmp_path: Path) -> None:
    nodes = tables / "nodes.csv"
    nodes.write_text(nodes.read_text().replace("0000000000000001", ""))
    output = tmp_path / "new" / "fabric.yaml"
    done = run_here(main, "fabric", "build", "--csv", str(tables), "--output", str(output))
    line = "beamer: nodes.csv line 6: dpid: got None, expected the datapath id of the switch, such as '0x10'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    assert not output.exists()


ROLES = ("--hosts", "gpu-server", "--switches", "switch")


def test_lists_of_netbox_are_a_directory_or_a_file(tmp_path: Path) -> None:
    lists, directory = netbox_lists(FABRIC), tmp_path / "export"
    directory.mkdir()
    contents: dict[str, Any] = {name: page(records) for name, records in lists.items() if name != "interfaces"}
    interfaces = lists["interfaces"]
    parts = {f"interfaces-{i + 1}": page(interfaces[i : i + 1], len(interfaces)) for i in range(len(interfaces))}
    for name, content in {**contents, **parts}.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "all.json").write_text(json.dumps(lists))
    for path in (directory, tmp_path / "all.json"):
        done = run_here(main, "fabric", "build", "--netbox", str(path), *ROLES, *SHAPE)
        assert (done.returncode, done.stderr) == (0, "")
        assert written(tmp_path, done.stdout) == FABRIC
    (directory / "interfaces-2.json").unlink()
    done = run_here(main, "fabric", "build", "--netbox", str(directory), *ROLES)
    count = f"got {len(interfaces) - 1}, expected all {len(interfaces)} records"
    assert (done.returncode, done.stderr.startswith(f"beamer: interfaces: results: {count}")) == (2, True)
    (directory / "cables.json").unlink()
    done = run_here(main, "fabric", "build", "--netbox", str(directory), *ROLES)
    assert done.stderr.endswith("expected a file cables.json, or its pages cables-1.json, cables-2.json and so on\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "expected valid JSON"),
        ('{"devices": [', "expected valid JSON"),
        ('{"devices": []}', "expected a directory, or a mapping of devices, interfaces, cables, ip-addresses to their pages"),
        ("[]", "expected a directory, or a mapping of devices"),
    ],
)
def test_a_file_that_is_no_export_is_named(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "all.json").write_text(content)
    done = run_here(main, "fabric", "build", "--netbox", str(tmp_path / "all.json"), *ROLES)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("beamer: --netbox: got '")
    assert said in done.stderr


def test_a_file_of_a_graph_is_read_by_its_name(tmp_path: Path) -> None:
    graph = graph_of(FABRIC)
    (tmp_path / "a.json").write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    nx.write_graphml(graph, tmp_path / "a.graphml")
    for name in ("a.json", "a.graphml"):
        done = run_here(main, "fabric", "build", "--networkx", str(tmp_path / name))
        assert (done.returncode, done.stderr) == (0, "")
        found = written(tmp_path, done.stdout)
        assert (found.name, set(found.links)) == (FABRIC.name, set(FABRIC.links))
    done = run_here(main, "fabric", "build", "--networkx", "a.gml")
    assert done.stderr == "beamer: --networkx: got 'a.gml', expected a file name that ends in .json or .graphml\n"


TOPOLOGY = """
from mininet.topo import SingleSwitchTopo, Topo

class Rack(Topo):
    def build(self, mac=None):
        self.addSwitch("s1")
        for number in (1, 2):
            self.addLink(self.addHost(f"h{number}"), "s1", bw=100)

ready = SingleSwitchTopo(k=3)
topos = {"pair": lambda: Rack()}
number = 3
"""


def test_a_topology_of_mininet_is_run(tmp_path: Path) -> None:
    pytest.importorskip("mininet")
    file = tmp_path / "rack.py"
    file.write_text(TOPOLOGY)
    for name in ("Rack", "pair"):
        done = run_here(main, "fabric", "build", "--mininet", f"{file}:{name}", "--auto-macs")
        assert (done.returncode, done.stderr) == (0, "")
        fabric = written(tmp_path, done.stdout)
        assert (fabric.name, [host.mac for host in fabric.hosts]) == ("Rack", ["00:00:00:00:00:01", "00:00:00:00:00:02"])
    done = run_here(main, "fabric", "build", "--mininet", f"{file}:ready", "--auto-macs", "--rate", "1gbit", "--name", "three")
    assert [link.rate_bps for link in written(tmp_path, done.stdout).links] == [10**9] * 6


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("FILE:Rack", "beamer: node h1: mac: got None, expected mac= of addHost; or say that the network is started with"),
        ("FILE:Rak", "beamer: --mininet: got 'Rak', expected one of Rack, SingleSwitchTopo, Topo, number, pair, ready, topos"),
        ("FILE:number", "beamer: topology: got 'int', expected a mininet.topo.Topo, or a mininet.net.Mininet"),
        ("FILE", "beamer: --mininet: got 'FILE', expected FILE.py:NAME"),
        ("absent.py:Rack", "beamer: --mininet: got 'absent.py', expected a readable file"),
    ],
)
def test_a_file_without_the_topology_is_named(tmp_path: Path, value: str, said: str) -> None:
    pytest.importorskip("mininet")
    file = tmp_path / "rack.py"
    file.write_text(TOPOLOGY)
    done = run_here(main, "fabric", "build", "--mininet", value.replace("FILE:", f"{file}:"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("import absent_of_all", "ModuleNotFoundError: No module named 'absent_of_all' on line 1"),
        ("def rack():\n    return [1, 2][3]\n", "IndexError: list index out of range on line 2"),
        ("def rack(racks):\n    return racks\n", "TypeError: rack() missing 1 required positional argument: 'racks'"),
        ("racks = (1,\n\nrack = 3 +", "SyntaxError: '(' was never closed on line 1"),
        ("\nraise SystemExit", "SystemExit on line 2"),
        ("import sys\n\nsys.exit('usage:\\n rack')", "SystemExit: usage: rack on line 3"),
        ("import json\njson.loads('{')\n", "on line 2"),
    ],
)
def test_an_error_in_the_file_of_a_topology_is_one_line(tmp_path: Path, file: str, said: str) -> None:
    pytest.importorskip("mininet")
    path = tmp_path / "rack.py"
    path.write_text(file)
    done = run_here(main, "fabric", "build", "--mininet", f"{path}:rack")
    assert (done.returncode, done.stdout) == (2, "")
    expected = f"beamer: --mininet: got '{path}:rack', expected a file and a topology of it that run without an error ("
    assert done.stderr.startswith(expected)
    assert done.stderr.endswith(f"{said})\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "beamer: source: got None, expected one of --csv, --netbox, --networkx, --mininet"),
        (
            ("--csv", "TABLES", "--netbox", "x"),
            "beamer: source: got '--csv --netbox', expected one of --csv, --netbox, --networkx, --mininet",
        ),
        (("--csv", "TABLES", "--hosts", "gpu"), "beamer: --hosts: got ['gpu'], expected no value, as it is of --netbox"),
        (("--csv", "absent"), "beamer: --csv: got 'absent/nodes.csv', expected a readable file"),
        (("--csv", "TABLES", "--rate", "fast"), "beamer: --rate: got 'fast', expected a rate"),
        (("--csv", "TABLES", "--planes", "300"), "beamer: fabric.planes: got 300, expected 1 to 256"),
        (("--csv", "TABLES", "--output", "/proc/fabric.yaml"), "beamer: --output: got '/proc/fabric.yaml', expected a file"),
    ],
)
def test_options_that_do_not_fit_are_named(tables: Path, options: tuple[str, ...], said: str) -> None:
    done = run_here(main, "fabric", "build", *(option.replace("TABLES", str(tables)) for option in options))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said)


def test_a_file_that_cannot_be_written_in_the_end_is_named(tmp_path: Path) -> None:
    put_out(FABRIC, tmp_path / "fabric.yaml")
    assert read_fabric(tmp_path / "fabric.yaml") == FABRIC
    with pytest.raises(InputError, match=r"--output: got '.*', expected a file that can be written \(Is a directory\)"):
        put_out(FABRIC, tmp_path)


def test_a_full_disk_is_named(tables: Path) -> None:
    done = run_here(main, "fabric", "build", "--csv", str(tables), *SHAPE, "--output", "/dev/full")
    assert (done.returncode, done.stdout) == (2, "")
    line = "beamer: --output: got '/dev/full', expected a file that can be written (No space left on device)\n"
    assert done.stderr == line
