"""`beamer fabric discover`: what it refuses before it listens, and what it prints of a network that is not there."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from beamer.cli import main

Refused = Callable[..., str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refused:
    def run(*options: str, code: int = 2) -> str:
        monkeypatch.setattr(sys, "argv", ["beamer", "fabric", "discover", *options])
        monkeypatch.setattr("controller.commands.discover.log_to_stderr", lambda: None)  # loggers would keep this test's stderr
        with pytest.raises(SystemExit) as ended:
            main()
        output = capfd.readouterr()
        assert ended.value.code == code
        assert "switches:" not in output.out, "no file is printed"
        return output.err

    return run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rate", "fast"), "--rate: got 'fast'"),
        (("--quiet", "0"), "--quiet: got 0.0, expected seconds above 0, a day at most"),
        (("--longest", "nan"), "--longest: got nan, expected seconds above 0, a day at most"),
        (("--openflow", "6653"), "--openflow: got '6653'"),
        (
            ("--http", "0.0.0.0:1"),
            "--http: got '0.0.0.0:1', expected a loopback address, or --tls-cert, --tls-key and --tls-ca",
        ),
        (("--openflow", "0.0.0.0:1"), "--openflow: got '0.0.0.0:1', expected a loopback address"),
        (("--tls-cert", "c.pem"), "--tls-key: got None, expected a file"),
        (("--output", "/proc/nowhere/fabric.yaml"), "--output: got '/proc/nowhere/fabric.yaml'"),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_connects(refused: Refused, options: tuple[str, ...], said: str) -> None:
    assert said in refused(*options)


def test_no_network_is_no_file(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "fabric.yaml"
    own = ("--http", "127.0.0.1:0", "--openflow", "127.0.0.1:0")
    assert "switches: got 0, expected a switch that has this address" in refused("--quiet", "0.1", "--output", str(path), *own)
    assert not path.exists()


def test_an_address_that_cannot_be_had_is_told(refused: Refused) -> None:
    said = refused("--insecure", "--http", "127.0.0.1:0", "--openflow", "a..b:1")
    assert "cannot listen for switches on a..b:1 (no host has such a name)" in said
    assert "give another address with --openflow" in said
