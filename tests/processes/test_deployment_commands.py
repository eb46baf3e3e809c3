"""The commands for two controllers in docs/operate.md, run against Open vSwitch's database alone."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.pages import blocks
from topologies.emulation.vswitch import SCHEMA

PROGRAMS = ("ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-appctl")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Return the variables by which commands find a database; nothing waits for a switch daemon, as there is none."""
    if any(shutil.which(program) is None for program in PROGRAMS) or not SCHEMA.exists():
        pytest.skip("Open vSwitch is not installed")
    wrapper = tmp_path / "bin" / "ovs-vsctl"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ovs-vsctl")} --no-wait "$@"\n')
    wrapper.chmod(0o755)
    directories = dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"), str(tmp_path))
    environment = {**os.environ, **directories, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    file, socket = f"{tmp_path}/conf.db", f"punix:{tmp_path}/db.sock"
    subprocess.run(["ovsdb-tool", "create", file, SCHEMA], check=True, env=environment)
    command = ["ovsdb-server", file, f"--remote={socket}", "--detach", "--no-chdir", "--pidfile", "--log-file", "-vconsole:off"]
    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
    yield environment
    subprocess.run(["ovs-appctl", "-t", "ovsdb-server", "exit"], check=True, env=environment)


def test_the_commands_for_two_controllers_are_taken(database: Mapping[str, str]) -> None:
    section = (ROOT / "docs" / "operate.md").read_text().partition("## Two controllers")[2]
    code = "".join(block.code for block in blocks(section) if block.language == "sh")
    commands = "\n".join(line for line in code.splitlines() if "ovs-vsctl" in line)
    assert commands.count("set-controller") == 1
    assert "max_backoff" in commands
    subprocess.run(["ovs-vsctl", "init"], check=True, env=database)
    subprocess.run(["ovs-vsctl", "add-br", "s1"], check=True, env=database)
    subprocess.run(["bash", "-euc", commands], check=True, env=database)
    listing = ["ovs-vsctl", "--bare", "--columns=target,max_backoff", "list", "controller"]
    printed = subprocess.run(listing, check=True, env=database, capture_output=True, text=True).stdout
    assert sorted(record.split() for record in printed.split("\n\n")) == [
        ["tcp:10.0.0.1:6653", "1000"],
        ["tcp:10.0.0.2:6653", "1000"],
    ]
