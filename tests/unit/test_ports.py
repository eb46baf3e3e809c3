"""The controller's default port is one constant; documents and units name the same."""

import re

from beamer.client import client
from beamer.ports import HTTP_PORT
from tests.support.checkout import ROOT
from tests.support.pages import PAGES

OTHERS = {6006, 6379, 8080, 8265, 8500, 8501, 8786, 8787, 8888, 10001, 29500}
"""Of what runs beside training; 8265 is that of Ray's dashboard."""
BESIDE = 8660  # of a second controller on a machine, in docs/tuners/command.md
URL = re.compile(r"(?:https?|wss?)://[\w.]+:(\d+)")


def test_the_default_port_is_nobody_elses() -> None:
    assert HTTP_PORT not in OTHERS
    assert 8616 <= HTTP_PORT <= 8664, "the range that IANA has left unassigned"
    assert client.URL.endswith(f":{HTTP_PORT}")


def test_it_is_written_once() -> None:
    folders = ("beamer", "controller", "hostagent", "topologies", "eval")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in sources if str(HTTP_PORT) in path.read_text("utf-8")] == ["ports.py"]


def test_documents_and_units_say_the_same() -> None:
    paths = [*PAGES, *(ROOT / "deploy").iterdir()]
    found = {int(port) for path in paths for port in URL.findall(path.read_text("utf-8"))}
    assert found == {HTTP_PORT, BESIDE}
