"""What the local engine is configured with and what it records: launches, nodes, launchers, records, locks, sockets."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beamer.engines.local import (
    LaunchSpec,
    LocalCluster,
    LocalEngine,
    LocalNode,
    MininetHost,
    NetworkNamespace,
    Ssh,
    Subprocess,
)
from beamer.engines.local.job import Busy, LocalJob
from beamer.engines.local.monitor import NodeMonitor
from beamer.engines.local.others import Others
from beamer.engines.local.record import LastRun, Record, last_run, load
from beamer.engines.local.states import Phase
from beamer.engines.local.supervisor import control, groups, store
from beamer.engines.local.supervisor.files import SavedState, load_state
from beamer.engines.local.supervisor.messages import FreePort, GetStatus, RunStatus, encode, read_request
from beamer.engines.local.supervisor.progress import Progress
from beamer.errors import EngineError, InputError
from beamer.gpu.engine import Placement

SPEC = LaunchSpec(
    ("python", "train.py"),
    cwd="/tmp",
    env=(("A", "1"),),
    progress=r"(?P<iteration>\d+) (?P<loss>\S+)",
    grace_s=2.5,
    batch_size=32,
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"command": ()}, r"command: got \(\)"),
        ({"grace_s": -1.0}, r"grace_s: got -1\.0, expected at least 0"),
        ({"batch_size": 0}, "batch_size: got 0"),
        ({"every": 0}, "every: got 0"),
        ({"stop_signal": signal.SIGKILL}, "stop_signal: got .*, expected a signal that a program can handle"),
        ({"checkpoint_signal": 1000}, "checkpoint_signal: got 1000"),
        ({"preload": ("torch", "os path")}, r"preload: got \('torch', 'os path'\), expected names of modules"),
        ({"preload": ("torch",), "command": ("bash", "train.sh")}, r"command: got \('bash', .*expected a Python program"),
        ({"progress": "(?P<loss"}, r"progress: .*expected a regular expression"),
        ({"progress": r"(?P<iteration>\d+)"}, "groups named loss and iteration or samples"),
        ({"progress": r"(?P<iteratoin>\d+) (?P<loss>\S+)"}, r"progress group 'iteratoin'.*did you mean 'iteration'"),
    ],
)
def test_launches_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SPEC, **fields)


def test_nodes_that_cannot_be() -> None:
    with pytest.raises(InputError, match=r"a\.devices: got \('x',\), expected as many names as GPUs, 2"):
        LocalNode("a", 2, devices=("x",))
    with pytest.raises(InputError, match=r"nodes: .*names that differ"):
        LocalCluster((LocalNode("a", 2), LocalNode("a", 1)))
    assert [LocalNode("a", 2, devices=("x", "y")).device(1), LocalNode("a", 2).device(1)] == ["y", "1"]


def test_records_survive_the_way_through_a_file(tmp_path: Path) -> None:
    record = Record(
        "a/b/c", SPEC, Placement((("n", 0), ("m", 3)), batch_size=64), ("n", "m", "k"), Phase.STOPPING, 4,
        Placement((("k", 1),)), Phase.FAILED, 4711, 0.5, "a note", Progress(12.0, 6.0, 3.5, 0.25),
    )  # fmt: skip
    record.save(tmp_path / "job")
    assert load(tmp_path / "job") == record
    assert record.ranks == {"n": [0], "m": [1]}
    assert load(tmp_path / "none") is None
    (tmp_path / "job").write_text("")
    assert load(tmp_path / "job") is None, "what a power failure leaves is no record"


COMMAND = ("echo", "it's", "a b", "$HOME")


def test_launchers_name_the_place_and_keep_the_command() -> None:
    assert Subprocess().wrap(COMMAND) == list(COMMAND)
    assert MininetHost(17).wrap(COMMAND) == ["mnexec", "-a", "17", *COMMAND]
    assert NetworkNamespace("x").wrap(COMMAND) == ["ip", "netns", "exec", "x", *COMMAND]
    *before, line = Ssh("me@there", ("-p", "2222")).wrap(COMMAND)
    assert before == ["ssh", "-o", "BatchMode=yes", "-p", "2222", "me@there"]
    assert shlex.split(line) == list(COMMAND)
    shown = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert shown.stdout == "it's a b $HOME\n", "the remote shell changes nothing"
    assert not Ssh("there").direct


def test_a_lock_is_held_until_all_its_copies_are_closed(tmp_path: Path) -> None:
    held = store.take(tmp_path / "lock")
    assert held is not None
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=(held,)
    ) as heir:
        os.close(held)
        assert store.take(tmp_path / "lock") is None
        assert heir.stdin
        heir.stdin.close()
        heir.wait()
    again = store.take(tmp_path / "lock")
    assert again is not None
    os.close(again)


def test_sockets_lie_however_deep(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-rather-long-name-of-a-directory"] * 6)
    deep.mkdir(parents=True)
    assert len(str(deep)) > 200
    with pytest.raises(control.Unreachable) as nobody:
        control.ask(deep, GetStatus(), 1.0)
    assert nobody.value.absent
    with store.listen(deep) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client, client.makefile("rwb") as stream:
                assert read_request(stream.readline()).message == GetStatus()
                stream.write(encode(FreePort(4711)).encode() + b"\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert control.ask(deep, GetStatus(), 10.0) == FreePort(4711)
        thread.join()
        with pytest.raises(control.Unreachable) as silent:
            control.ask(deep, GetStatus(), 0.05)
        assert not silent.value.absent, "a supervisor that is slow is not started a second time"


def test_groups_are_tried_from_the_best_to_the_one_that_always_works() -> None:
    kinds = [kind for kind, _ in groups.candidates("x")]
    assert kinds == [kind for kind in groups.KINDS if kind in kinds]
    assert kinds[-1] == "signals"
    assert groups.candidates("x", "signals") == [("signals", "")]
    assert all(path.endswith("/x") for kind, path in groups.candidates("x") if kind != "signals")


def test_a_group_is_frozen_when_the_kernel_reports_it(tmp_path: Path) -> None:
    group = groups.reopen("cgroup2", str(tmp_path), "A=1")
    asked, event = tmp_path / "cgroup.freeze", tmp_path / "cgroup.events"
    event.write_text("populated 1\nfrozen 0\n")
    assert not group.freeze(0.02), "it was asked to, but goes on"
    assert asked.read_text() == "1"
    assert group.thaw(0.02)
    assert asked.read_text() == "0"
    event.write_text("populated 1\nfrozen 1\n")
    assert group.freeze(0.02)
    assert not group.thaw(0.02)


def test_what_is_left_in_a_group_of_0_1_0s_freezer_is_killed_by_its_mark(tmp_path: Path) -> None:
    store.write_json(tmp_path / "state", SavedState(RunStatus(), ("cgroup1", "/sys/fs/cgroup/freezer/beamer-1")))
    saved = load_state(tmp_path).group
    assert saved is not None
    mark = f"BEAMER_LEFT={tmp_path}"
    name, _, value = mark.partition("=")
    with subprocess.Popen(["sleep", "60"], env={**os.environ, name: value}) as left:
        assert groups.reopen(*saved, mark).kill(10.0)
        assert left.wait() == -signal.SIGKILL


def test_an_engine_has_its_directory_to_itself(tmp_path: Path) -> None:
    engine = LocalEngine(LocalCluster.here(1), tmp_path, lambda job: SPEC)
    with pytest.raises(EngineError, match="another engine uses"):
        LocalEngine(LocalCluster.here(1), tmp_path, lambda job: SPEC)
    engine.close()
    LocalEngine(LocalCluster.here(1), tmp_path, lambda job: SPEC).close()
    with pytest.raises(InputError, match="group: got 'cgroups'"):
        LocalEngine(LocalCluster.here(1), tmp_path, lambda job: SPEC, group="cgroups")


def test_a_supervisor_imports_little() -> None:
    code = "import sys, beamer.engines.local.supervisor as s; print(*{m.split('.')[0] for m in sys.modules})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "beamer" in shown
    assert not {"numpy", "pydantic", "torch", "scipy"} & set(shown), "it starts fast and has little memory"


def test_a_job_that_has_been_stopped_does_not_advance(tmp_path: Path) -> None:
    cluster = LocalCluster.here(1)
    job = LocalJob(
        Record("j", SPEC, Placement((("localhost", 0),)), ()),
        tmp_path,
        cluster,
        NodeMonitor(cluster.nodes),
        "signals",
        Others({}, cluster),
    )
    job.set()
    with job.locked("stop", 0.0):
        job.forget()
    with pytest.raises(Busy, match="j: advance: it has just been stopped"), job.locked("advance", 0.0):
        job.set(phase=Phase.PARKED)
    assert not (tmp_path / "job").exists()
    assert last_run(tmp_path) == LastRun(1)
