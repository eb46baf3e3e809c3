"""`beamer fabric show`: a network's file as a person reads it, and in either form."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.cli import main
from beamer.network.fabric_file import read_fabric
from beamer.testing.fabrics import star
from tests.support.commands import run_here
from topologies import leaf_spine


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "fabric"
    path.write_text(text)
    return path


def test_a_network_is_a_line_for_each_of_its_parts(tmp_path: Path) -> None:
    file = write(tmp_path, json.dumps(star(2).to_dict()))
    assert run_here(main, "fabric", "show", str(file)).stdout.splitlines() == [
        "star: hosts 2, switches 1, cables 2, planes 1, mtu 1500",
        "host  h1  10.77.0.1  02:00:00:00:00:01  agent h1",
        "host  h2  10.77.0.2  02:00:00:00:00:02  agent h2",
        "switch  s1  0000000000000001  no agent",
        "cable  h1 (h1-eth1)  s1 port 1 (s1-eth1)  20mbit",
        "cable  h2 (h2-eth1)  s1 port 2 (s1-eth2)  20mbit",
    ]


@pytest.mark.parametrize("form", ["--yaml", "--json"])
def test_either_form_is_the_same_network(tmp_path: Path, form: str) -> None:
    fabric = leaf_spine.build(leaves=3, spines=2, hosts_per_leaf=2, rate="25gbit")
    file = write(tmp_path, json.dumps(fabric.to_dict()))
    printed = run_here(main, "fabric", "show", str(file), form)
    assert printed.returncode == 0, printed.stderr
    assert read_fabric(write(tmp_path, printed.stdout)) == fabric


def test_what_no_controller_could_lead_is_one_line(tmp_path: Path) -> None:
    text = json.dumps(star(2).to_dict()).replace("02:00:00:00:00:02", "ff:ff:ff:ff:ff:ff")
    refused = run_here(main, "fabric", "show", str(write(tmp_path, text)))
    line = "beamer: fabric.hosts[1].mac: got 'ff:ff:ff:ff:ff:ff', expected a unicast MAC address, not zero\n"
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", line)
    refused = run_here(main, "fabric", "show", str(tmp_path / "none"))
    assert (refused.returncode, refused.stderr.startswith("beamer: FILE: got ")) == (2, True)


def test_two_forms_at_once_are_refused(tmp_path: Path) -> None:
    refused = run_here(main, "fabric", "show", str(write(tmp_path, "{}")), "--yaml", "--json")
    assert (refused.returncode, refused.stderr) == (2, "beamer: --json: got True, expected one form, --yaml or --json\n")


def test_a_switch_is_shown_with_its_database(tmp_path: Path) -> None:
    fabric = star(2)
    made = replace(fabric, switches=(replace(fabric.switches[0], ovsdb="unix:/run/db.sock"),))
    shown = run_here(main, "fabric", "show", str(write(tmp_path, json.dumps(made.to_dict())))).stdout
    assert "switch  s1  0000000000000001  database unix:/run/db.sock\n" in shown
