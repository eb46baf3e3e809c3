"""Fork servers: which runs share one, what their program may be written in, and when they leave."""

import ast
import json
import os
import re
import resource
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from beamer.engines.local.python_command import parse_command
from beamer.engines.local.spec import LaunchSpec
from beamer.engines.local.supervisor.warm import preloading, server, servers
from beamer.engines.local.supervisor.warm.run import MAX_ATTEMPTS, WarmRun, WarmStartError
from beamer.engines.local.supervisor.warm.servers import ServerSpec, inherited

PATIENCE_S = 30.0
FOLDER = Path(server.__file__).parent
OF_SERVER = ("own_process", "preloading", "program", "server")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerSpec]:
    """Return what a server is started as, which then is no child of the tests; they adopt no orphans."""
    monkeypatch.setattr(servers, "adopt_orphans", lambda adopts: None)
    yield ServerSpec(parse_command((sys.executable, "t.py")), ("uuid",), {**os.environ, "A": "1"}, str(tmp_path))
    servers.end(tmp_path / "warm")


def closed(connection: socket.socket) -> bool:
    connection.settimeout(PATIENCE_S)
    return not connection.recv(1)


@pytest.mark.parametrize("name", OF_SERVER)
def test_the_program_is_that_of_any_interpreter_from_3_8_on(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(), feature_version=(3, 8))
    found = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert len(found) > 3
    assert {node.module for node in froms if node.level} <= {*OF_SERVER}
    found += [node.module or "" for node in froms if not node.level]
    assert {one.partition(".")[0] for one in found} <= {*sys.stdlib_module_names}


def with_constants(folder: Path, monkeypatch: pytest.MonkeyPatch, **constants: float) -> None:
    """Have servers run a copy of their program with other constants."""
    copy = folder / "copy"
    copy.mkdir()
    for name in OF_SERVER:
        text = (FOLDER / f"{name}.py").read_text()
        for constant, value in constants.items():
            text = re.sub(rf"^{constant} = .*", f"{constant} = {value}", text, flags=re.MULTILINE)
        (copy / f"{name}.py").write_text(text)
    monkeypatch.setattr(servers, "_PACKAGE", copy)


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


@pytest.fixture
def lowers_limit() -> Iterator[None]:
    """Lower the limit of open files of this process for a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_a_process_is_started_with_tells_servers_apart(spec: ServerSpec, lowers_limit: None) -> None:
    assert ServerSpec(spec.command, spec.modules, spec.environment, spec.cwd).key != spec.key


def test_all_that_a_process_hands_down_is_seen(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tx\nUmask:\t0022\n")
    (tmp_path / "cgroup").write_text("1:name=systemd:/user.slice/session-7.scope\n0::/user.slice/session-7.scope/a\n")
    (tmp_path / "ns").mkdir()
    (tmp_path / "ns" / "net").symlink_to("net:[1]")
    before = inherited(tmp_path)
    assert inherited(tmp_path) == before
    (tmp_path / "cgroup").write_text("1:name=systemd:/user.slice/session-8.scope\n0::/user.slice/session-8.scope/a\n")
    assert inherited(tmp_path) == before, "a login has a group of its own"
    (tmp_path / "cgroup").write_text("1:name=systemd:/user.slice/session-8.scope\n0::/user.slice/session-8.scope/b\n")
    other_group = inherited(tmp_path)
    (tmp_path / "status").write_text("Name:\tx\nUmask:\t0077\n")
    other_umask = inherited(tmp_path)
    (tmp_path / "ns" / "net").unlink()
    (tmp_path / "ns" / "net").symlink_to("net:[2]")
    found = [before, other_group, other_umask, inherited(tmp_path)]
    assert len({json.dumps(one) for one in found}) == 4


def test_a_server_leaves_when_nobody_needs_it_any_more(
    spec: ServerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_constants(tmp_path, monkeypatch, LINGER_S=0.5, CHECK_S=0.05)
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


def test_directories_of_servers_are_for_their_user_alone(
    spec: ServerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "warm").mkdir(0o755)
    found = servers.connect(tmp_path, "node", spec)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "warm", found.directory)] == [0o700, 0o700]
    found.socket.close()
    assert found.errors
    found.errors.close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "warm").symlink_to(tmp_path / "warm")
    with pytest.raises(PermissionError, match=r"other/warm must be a directory of user .*, or a link"):
        servers.connect(tmp_path / "other", "node", spec)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="warm must be a directory of user"):
        servers.connect(tmp_path, "node", spec)


def test_a_server_that_hangs_in_an_import_ends(spec: ServerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_constants(tmp_path, monkeypatch, IMPORT_S=1)
    (tmp_path / "hangs.py").write_text("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()\n")
    found = servers.connect(tmp_path, "node", replace(spec, modules=("hangs",)))
    found.socket.settimeout(PATIENCE_S)
    with pytest.raises(ConnectionResetError):
        found.socket.recv(1)
    assert not servers._servers(tmp_path / "warm")
    found.socket.close()
    assert found.errors
    found.errors.close()


def test_servers_that_do_not_die_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "END_S", 0.05)
    monkeypatch.setattr(servers, "_servers", lambda directory: {2**22 + 1: directory})  # No process has so high a number.
    servers.end(tmp_path)


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


def test_a_run_that_is_given_up_before_its_ranks_may_go_runs_nothing(spec: ServerSpec, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(
        f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)"
    )
    (tmp_path / "t.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('x')")
    spec = replace(spec, modules=("waits",))
    first = servers.connect(tmp_path, "node", spec)
    first.socket.close()
    asked = servers.connect(tmp_path, "node", spec)
    (tmp_path / "go").touch()
    assert b"is_ready" in asked.socket.recv(100)
    request = {
        "directory": str(tmp_path), "cwd": str(tmp_path), "locks": 0, "mark": "A=1", "command": ["python", "t.py"],
        "program": "t.py", "is_module": False, "arguments": [], "environment": {}, "ranks": [{}],
    }  # fmt: skip
    reading, writing = os.pipe()
    socket.send_fds(asked.socket, [json.dumps(request).encode() + b"\n"], [writing, writing])
    os.close(writing)
    message = json.loads(asked.socket.recv(1000))
    [rank] = message["ranks"]
    assert os.path.exists(f"/proc/{rank}")
    asked.socket.close()  # Before the rank may go.
    assert os.read(reading, 1) == b"", "the pipe has been closed, and nothing written to it"
    begun_s = time.monotonic()
    while any(os.path.exists(f"/proc/{pid}") for pid in (rank, message["parent"])):
        assert time.monotonic() < begun_s + PATIENCE_S
        time.sleep(0.02)
    assert not (tmp_path / "ran").exists()
    os.close(reading)
    assert first.errors
    first.errors.close()


def test_a_run_whose_modules_change_all_the_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[socket.socket] = []

    def connect(root: Path, node: str, spec: ServerSpec) -> servers.ServerConnection:
        own, other = socket.socketpair()
        other.sendall(b'{"is_stale": true}\n')
        asked.append(other)
        return servers.ServerConnection(own, tmp_path)

    monkeypatch.setattr(servers, "connect", connect)
    run = WarmRun(LaunchSpec(("python", "t.py"), preload=("uuid",)), tmp_path / "job" / "node", {}, {0: {}}, "A=1", ())
    for _ in range(MAX_ATTEMPTS - 1):
        assert not run.take()
        assert run.is_stale
        run.connect()
    with pytest.raises(WarmStartError, match="uuid of preload imports change all the time"):
        run.take()
    run.close()
    assert len(asked) == MAX_ATTEMPTS
    for one in asked:
        assert closed(one), "no request was sent"
        one.close()


@pytest.mark.parametrize("prefix", ["gpu", "other"])
def test_a_device_file_that_is_open_is_a_gpu_in_use(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preloading, "GPU_DEVICES", (str(tmp_path / "gpu"),))
    with open(tmp_path / f"{prefix}0", "w"):
        assert preloading.has_gpu() is (prefix == "gpu")
    assert not preloading.has_gpu()
