"""A controller's ports stay its own between two of its lives."""

import socket
from pathlib import Path

import pytest

from beamer.studies.journal.location import sqlite_url
from eval.faults.site import ControllerProcess, ending


def test_nobody_else_is_given_the_ports_of_a_controller_that_does_not_run(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path, "controller", sqlite_url(tmp_path / "journal.db"))
    ports = [port for _, port in (controller.address, controller.openflow)]
    with ending(controller):
        for port in ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
    for port in ports:
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
