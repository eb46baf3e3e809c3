"""Fork servers: which runs share one, what their program may be written in, and when they leave."""

import ast
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.engines.local.python_command import parse_command
from beamer.engines.local.supervisor.warm import server, servers
from beamer.engines.local.supervisor.warm.servers import ServerSpec

PATIENCE_S = 30.0
SOURCE = Path(server.__file__).read_text()


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerSpec]:
    """Return what a server is started as, which then is no child of the tests; they adopt no orphans."""
    monkeypatch.setattr(servers, "adopt_orphans", lambda adopts: None)
    yield ServerSpec(parse_command((sys.executable, "t.py")), ("uuid",), {**os.environ, "A": "1"}, str(tmp_path))
    servers.end(tmp_path / "warm")


def closed(connection: socket.socket) -> bool:
    connection.settimeout(PATIENCE_S)
    return not connection.recv(1)


def test_the_program_is_that_of_any_interpreter_from_3_8_on() -> None:
    tree = ast.parse(SOURCE, feature_version=(3, 8))
    found = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    found += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert len(found) > 10
    assert {name.partition(".")[0] for name in found} <= {*sys.stdlib_module_names}


def test_server_and_supervisor_agree() -> None:
    assert (server.PLACEHOLDER, server.NAME) == (servers.PLACEHOLDER, servers.NAME)


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        ({"A": "2"}, False),
        ({"B": ""}, False),
        ({"PYTHONHASHSEED": "1"}, False),
        ({"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1", "CUDA_VISIBLE_DEVICES": "3"}, True),
        ({"BEAMER_TRIAL": "other"}, True),
        ({"SSH_CONNECTION": "10.0.0.1 4711 10.0.0.2 22", "SHLVL": "3"}, True),
    ],
)
def test_runs_whose_environments_differ_in_more_than_ranks_share_no_server(
    changed: dict[str, str], is_same: bool, spec: ServerSpec
) -> None:
    other = replace(spec, environment={**spec.environment, **changed})
    assert (other.key == spec.key) is is_same
    assert not {"RANK", "CUDA_VISIBLE_DEVICES", "BEAMER_TRIAL"} & other.own_environment.keys()


def test_where_modules_are_looked_for_tells_servers_apart(spec: ServerSpec, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "other")
    absolute = replace(spec, command=parse_command((sys.executable, str(tmp_path / "t.py"))))
    assert absolute.key == replace(absolute, cwd=elsewhere).key == spec.key
    assert spec.key != replace(spec, cwd=elsewhere).key, "a script elsewhere"
    relative = replace(absolute, environment={**spec.environment, "PYTHONPATH": "lib:/usr/lib"})
    assert relative.key != replace(relative, cwd=elsewhere).key
    module = replace(spec, command=parse_command((sys.executable, "-m", "pack")))
    assert module.first_path == str(tmp_path)
    assert module.key != replace(module, cwd=elsewhere).key
    assert spec.key not in (
        replace(spec, modules=("json",)).key,
        replace(absolute, command=parse_command(("python", "t.py"))).key,
    )
    (tmp_path / "pack").mkdir()
    archive = replace(spec, command=parse_command((sys.executable, "pack")))
    assert (archive.is_archive, archive.first_path) == (True, str(tmp_path / "pack"))
    (tmp_path / "link.py").symlink_to(tmp_path / "pack" / "real.py")
    link = replace(spec, command=parse_command((sys.executable, "link.py")))
    assert link.first_path == str(tmp_path / "pack")


def test_a_server_leaves_when_nobody_needs_it_any_more(
    spec: ServerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "server.py"
    program.write_text(SOURCE.replace("LINGER_S = 30.0", "LINGER_S = 0.5").replace("CHECK_S = 1.0", "CHECK_S = 0.05"))
    monkeypatch.setattr(servers, "_PROGRAM", program)
    first = servers.connect(tmp_path, "node", spec)
    assert first.errors
    time.sleep(1.0)
    second = servers.connect(tmp_path, "node", spec)
    assert (second.directory, second.errors) == (first.directory, None), "a run that is being asked for keeps it"
    for one in (first, second):
        one.socket.close()
    begun_s = time.monotonic()
    while (first.directory / "control").exists():
        assert time.monotonic() < begun_s + PATIENCE_S
        time.sleep(0.02)
    assert time.monotonic() - begun_s > 0.3
    first.errors.close()


def test_a_server_whose_directory_is_removed_leaves(spec: ServerSpec, tmp_path: Path) -> None:
    found = servers.connect(tmp_path, "node", spec)
    assert found.errors
    assert b"is_ready" in found.socket.recv(100)
    found.socket.sendall(b"\n")  # no message
    assert closed(found.socket)
    (found.directory / "control").unlink()
    begun_s = time.monotonic()
    while servers._servers(found.directory):
        assert time.monotonic() < begun_s + PATIENCE_S
        time.sleep(0.02)
    found.errors.close()
    found.socket.close()


def test_a_run_that_is_given_up_before_it_is_forked_is_not(spec: ServerSpec, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(
        f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)"
    )
    found = servers.connect(tmp_path, "node", replace(spec, modules=("waits",)))
    request = {
        "directory": str(tmp_path), "cwd": str(tmp_path), "locks": 0, "mark": "A=1", "command": ["python", "t.py"],
        "program": "t.py", "is_module": False, "arguments": [], "environment": {}, "ranks": [{}],
    }  # fmt: skip
    reading, writing = os.pipe()
    socket.send_fds(found.socket, [json.dumps(request).encode() + b"\n"], [writing, writing])
    os.close(writing)
    found.socket.close()
    (tmp_path / "go").touch()
    assert os.read(reading, 1) == b"", "the pipe has been closed, and nothing written to it"
    os.close(reading)
    assert found.errors
    found.errors.close()


@pytest.mark.parametrize("prefix", ["gpu", "other"])
def test_a_device_file_that_is_open_is_a_gpu_in_use(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GPU_DEVICES", (str(tmp_path / "gpu"),))
    with open(tmp_path / f"{prefix}0", "w"):
        assert server.has_gpu() is (prefix == "gpu")
    assert not server.has_gpu()
