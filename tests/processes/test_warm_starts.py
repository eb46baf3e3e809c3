"""Ranks that are forked from a process which has imported what their program imports: nothing else about them may differ."""

import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest
import yaml

from beamer.cli import main
from beamer.engines.local import LaunchSpec, LocalEngine, LocalNode
from beamer.engines.local.supervisor.processes import stat
from beamer.engines.local.supervisor.warm import servers
from beamer.gpu.engine import RunState
from tests.processes.site import Site, of_directory, on, read, until
from tests.processes.test_started_ahead import RemoteCable
from tests.support.commands import run_here

ONE, TWO = on("localhost"), on("localhost", "localhost")
IMPORT_S = 1.0
IMPORTED = f"""
import os, pathlib, time
with open({{log!r}}, "a") as file:
    print(os.getpid(), file=file)
time.sleep({IMPORT_S})
"""
COUNTS = """
import json, sys, time
for step in range(1, 10**6):
    print(json.dumps({"iteration": step, "loss": 1}), flush=True)
    time.sleep(0.01)
"""
# A line and its end are written at once, as two ranks write.
SAYS = "import sys\nsys.stdout.write(f'preloaded {\"imported\" in sys.modules}\\n')\n"


def add(site: Site, job: str, code: str, *arguments: str, preload: tuple[str, ...] = ("imported",), **options: Any) -> Path:
    """Have a job run a script, beside which there is a module that takes long to import; return the script."""
    module, script = site.root / "imported.py", site.root / f"{job}.py"
    if not module.exists():
        module.write_text(IMPORTED.format(log=str(site.root / "imports")))
    script.write_text(code)
    options = {"cwd": str(site.root), "command": (sys.executable, script.name, *arguments), **options}
    site.specs[job] = LaunchSpec(preload=preload, **options)
    return script


def imports(site: Site) -> int:
    """Return how often the module was imported."""
    log = site.root / "imports"
    return len(log.read_text().splitlines()) if log.exists() else 0


def printed(site: Site, job: str) -> str:
    [path] = (site.root / "jobs").glob(f"{job}-*/*/output")
    return path.read_text()


def ended(site: Site, engine: LocalEngine, job: str, *states: RunState) -> str:
    """Run a job to its end, and return what it printed."""
    engine.start(job, ONE)
    site.until_state(engine, job, *states)
    return printed(site, job)


def fork_servers(site: Site) -> list[int]:
    return [pid for pid in of_directory(site.root) if b"BEAMER_WARM=" in read(pid, "environ")]


def parents(site: Site) -> list[int]:
    return [pid for pid in of_directory(site.root) if b"BEAMER_PARENT_OF=" in read(pid, "environ")]


def test_jobs_start_with_the_modules_imported_once(site: Site, group: str) -> None:
    engine = site.engine()
    for job in ("a", "b", "c"):
        add(site, job, SAYS + COUNTS)
    engine.start("a", TWO)
    site.until_step(engine, "a")
    begun_s = time.monotonic()
    for job in ("b", "c"):
        engine.start(job, ONE)
        site.until_step(engine, job)
    assert time.monotonic() - begun_s < 2 * IMPORT_S
    assert [printed(site, job).split("\n")[0] for job in ("a", "b", "c")] == ["preloaded True"] * 3
    assert imports(site) == 1
    assert len(site.ranks()) == 4
    for job in ("a", "b", "c"):
        engine.stop(job)
    assert not site.ranks()
    until(lambda: not parents(site), "the parents of ranks to be gone")
    assert len(fork_servers(site)) == 1
    engine.close()
    assert not fork_servers(site)


OBSERVES = """
names = sorted(vars())
import gc, io, json, locale, os, resource, signal, sys, threading
main = sys.modules["__main__"]
streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
environment = {k: v for k, v in os.environ.items() if not k.startswith("BEAMER_") and k != "MASTER_PORT"}
found = {
    "names": names, "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "executable": sys.executable,
    "flags": list(sys.flags), "path": sys.path,
    "warnoptions": sys.warnoptions, "xoptions": sys._xoptions,
    "main": {k: str(v).split(" at ")[0] for k, v in vars(main).items() if k.startswith("__") and k != "__builtins__"},
    "loader": type(main.__loader__).__name__ if __spec__ is None else str(__spec__.origin),
    "builtins": main.__builtins__ is __import__("builtins"),
    "environment": environment, "own": sorted(k for k in os.environ if k.startswith("BEAMER_")),
    "cwd": os.getcwd(), "umask": os.umask(0o022), "session": os.getsid(0) == os.getpid() == os.getpgid(0),
    "signals": {n.name: str(signal.getsignal(n)) for n in signal.Signals}, "mask": sorted(signal.pthread_sigmask(0, [])),
    "wakeup": signal.set_wakeup_fd(-1), "threads": [t.name for t in threading.enumerate()],
    "main thread": threading.main_thread() is threading.current_thread(),
    "streams": {k: [type(s.buffer).__name__, s.encoding, s.errors, s.line_buffering, s.write_through, s.seekable(), s.isatty(),
        s.mode, s.name, s.newlines, s.fileno()] for k, s in streams.items()},
    "descriptors": sorted(os.path.basename(os.readlink(f"/proc/self/fd/{n}").split(":")[0]) for n in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{n}")),
    "status": [line for line in open("/proc/self/status") if line.startswith(("Sig", "Shd", "NoNewPrivs", "Threads"))
        and not line.startswith("SigQ")],
    "command line": open("/proc/self/cmdline").read().rstrip("\\0").split("\\0"),
    "limits": resource.getrlimit(resource.RLIMIT_NOFILE), "nice": os.nice(0),
    "excepthook": sys.excepthook is sys.__excepthook__, "gc": [gc.isenabled(), gc.get_freeze_count()],
}
print(json.dumps(found), flush=True)
"""


@pytest.mark.parametrize("options", [(), ("-O", "-X", "utf8", "-W", "ignore", "-I", "-s")], ids=["plain", "options"])
@pytest.mark.parametrize("how", ["script", "module", "directory", "elsewhere", "link"])
def test_a_program_finds_everything_as_a_new_process_does(site: Site, how: str, options: tuple[str, ...]) -> None:
    package = site.root / "pack"
    package.mkdir()
    (package / "__main__.py").write_text(OBSERVES)
    (site.root / "link").symlink_to(package.parent)
    is_module = how in ("module", "link")
    command = {"script": "./seen.py", "elsewhere": "../link/seen.py"}.get(how, "pack")
    cwd = site.root / {"elsewhere": "pack", "link": "link"}.get(how, "")
    words = (sys.executable, *options, *(["-m"] if is_module else []), command, "--x", "1")
    env = (("PYTHONHASHSEED", "3"), ("PYTHONPATH", str(site.root)), ("CUDA_VISIBLE_DEVICES", "7"), ("LOCAL_RANK", "5"))
    if "-I" in options and is_module:
        words = (sys.executable, *options, "-m", "json.tool", "--help")
    engine, seen = site.engine(), {}
    for job, modules in (("cold", ()), ("warm", ("uuid",))):
        add(site, job, "", preload=modules, command=words, env=env, cwd=str(cwd))
        (site.root / "seen.py").write_text(OBSERVES)
        text = ended(site, engine, job, RunState.FINISHED)
        seen[job] = json.loads(text) if text.startswith("{") else {"text": text}
    assert seen["warm"] == seen["cold"]


ENDS = {
    "returns": ("print('done')", 0),
    "none": ("raise SystemExit", 0),
    "code": ("import sys; sys.exit(7)", 7),
    "text": ("raise SystemExit('no such data')", 1),
    "exception": ("def broken():\n    raise ValueError('no such data')\nbroken()", 1),
    "cause": ("try:\n    {}['a']\nexcept KeyError as error:\n    raise RuntimeError('wrapped') from error", 1),
    "syntax": ("x = (", 1),
    "interrupt": ("raise KeyboardInterrupt", -2),
    "signal": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11),
    "exit": ("import os; print('lost', end=''); os._exit(3)", 3),
    "hook": ("import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__, len(repr(a[2])) > 0)\nraise OSError", 1),
    "atexit": ("import atexit; atexit.register(print, 'at the end'); print('first', end=' ')", 0),
    "thread": ("import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()", 0),
    "destructor": ("class A:\n    def __del__(self): print('gone')\na = A()", 0),
}


def test_a_program_ends_as_a_new_process_does(site: Site) -> None:
    engine = site.engine()
    jobs = {f"{name}-{kind}": kind for name in ENDS for kind in ("cold", "warm")}
    for job, kind in jobs.items():
        code, _ = ENDS[job.partition("-")[0]]
        add(site, job, "", preload=("uuid",) if kind == "warm" else (), command=(sys.executable, "ends.py"))
        folder = site.root / job
        folder.mkdir()
        (folder / "ends.py").write_text(code)
        site.specs[job] = LaunchSpec(site.specs[job].command, preload=site.specs[job].preload, cwd=str(folder))
        engine.start(job, ONE)
    for name, (_, code) in ENDS.items():
        seen = {}
        for kind in ("cold", "warm"):
            job = f"{name}-{kind}"
            one = site.until_state(engine, job, RunState.FINISHED, RunState.FAILED)
            seen[kind] = one.state, one.exit.replace(job, name), printed(site, job).replace(job, name)
        assert seen["warm"] == seen["cold"], name
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        assert (how in seen["warm"][1]) is (code != 0), seen["warm"]


USES_MAIN = """
import multiprocessing, pickle, sys

class Point:
    def __init__(self, x): self.x = x

def double(point): return Point(2 * point.x)

if __name__ == "__main__":
    assert pickle.loads(pickle.dumps(Point(1))).x == 1
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, [point.x for point in pool.map(double, [Point(i) for i in range(3)])], flush=True)
"""


def test_processes_of_a_program_know_its_main_module(site: Site) -> None:
    add(site, "job", USES_MAIN, preload=("imported", "multiprocessing"))
    text = ended(site, site.engine(), "job", RunState.FINISHED)
    assert text.splitlines() == [f"{method} [0, 2, 4]" for method in ("fork", "spawn", "forkserver")]


DRAWS = """
import json, multiprocessing, random, sys, tempfile, uuid
import numpy
sys.stdout.write(json.dumps([random.random(), numpy.random.random(), numpy.random.default_rng().random(), uuid.uuid4().hex,
    multiprocessing.current_process().authkey.hex(), next(tempfile._get_candidate_names())]) + "\\n")
"""


def test_no_rank_draws_what_another_has_drawn(site: Site) -> None:
    add(site, "job", DRAWS, preload=("numpy", "numpy.random", "multiprocessing", "random", "tempfile"))
    engine = site.engine()
    engine.start("job", TWO)
    site.until_state(engine, "job", RunState.FINISHED)
    first, second = (json.loads(line) for line in printed(site, "job").splitlines())
    assert not set(first) & set(second)


STOPS = """
import os, pathlib, signal, sys
def stop(number, frame):
    pathlib.Path(os.environ["BEAMER_CHECKPOINT"]).touch()
    sys.stdout.write("told to stop\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
""" + COUNTS.lstrip()


def test_ranks_are_suspended_resumed_and_told_to_stop(site: Site, group: str) -> None:
    add(site, "job", STOPS)
    engine = site.engine()
    engine.start("job", TWO)
    site.until_step(engine, "job", 3)
    engine.suspend("job")
    site.until_state(engine, "job", RunState.SUSPENDED)
    done = site.until_step(engine, "job")
    time.sleep(0.3)
    assert site.until_step(engine, "job") == done
    engine.resume("job")
    site.until_step(engine, "job", done)
    engine.resize("job", None)
    assert site.until_state(engine, "job", RunState.PARKED).exit == ""
    assert printed(site, "job").count("told to stop") == 2
    assert not site.ranks()


def test_what_is_started_ahead_is_held_at_its_first_line(site: Site, group: str) -> None:
    add(site, "job", SAYS + COUNTS)
    engine = site.engine(prepares=True)
    engine.prepare("job", ONE)
    assert site.see(engine, "job").state is RunState.PREPARING
    site.until_state(engine, "job", RunState.PREPARED)
    assert len(site.ranks()) == 1
    before = printed(site, "job")
    assert "preloaded True" in before
    time.sleep(0.3)
    assert printed(site, "job") == before, "it computes nothing"
    engine.start("job", ONE)
    site.until_step(engine, "job", 3)
    assert site.see(engine, "job").launch == 1


@pytest.mark.parametrize("call", ["suspend", "park", "stop"])
def test_a_run_whose_modules_are_being_imported_is_obeyed(site: Site, group: str, call: str) -> None:
    add(site, "job", SAYS + COUNTS)
    engine = site.engine()
    engine.start("job", ONE)
    assert not site.ranks()
    if call == "stop":
        engine.stop("job")
    elif call == "park":
        engine.resize("job", None)
        assert site.until_state(engine, "job", RunState.PARKED).exit == ""
    else:
        engine.suspend("job")
        site.until_state(engine, "job", RunState.SUSPENDED)
        until(site.ranks, "the rank to be forked")
        time.sleep(0.2)
        assert printed(site, "job") == ""
        engine.resume("job")
        site.until_step(engine, "job", 3)
        return
    time.sleep(IMPORT_S)
    until(lambda: imports(site), "the import to be over")
    until(lambda: not site.ranks() and not parents(site), "nothing to be left of the first run")
    engine.start("job", ONE)
    site.until_step(engine, "job")
    assert imports(site) == 1, "the server was used by the next run"


BROKEN = {
    "raise": ("raise OSError('no such library')", "module broken of preload cannot be imported by .*OSError: no such library"),
    "exit": ("raise SystemExit(0)", "module broken of preload cannot be imported by .*SystemExit: 0"),
    "die": ("import os; print('last words', flush=True); os._exit(3)", "preloads broken has died, .* s: last words"),
    "thread": (
        "import threading; threading.Thread(target=threading.Event().wait, name='watcher', daemon=True).start()",
        r"module broken of preload starts threads \(watcher\), which a fork lacks: leave it out of preload",
    ),
    "unnamed thread": (
        "import _thread, threading, time; _thread.start_new_thread(threading.Event().wait, ()); time.sleep(0.2)",
        r"module broken of preload starts threads \(unnamed\)",
    ),
    "openmp": (
        "import ctypes\nnothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)\n"
        "ctypes.CDLL('libgomp.so.1').GOMP_parallel(nothing, None, 2, 0)",
        "module broken of preload computes with OpenMP while it is imported, and a fork that does so hangs: leave it out",
    ),
    "title": (
        "import ctypes\nfields = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
        "ctypes.memset(int(fields[47]), 0, int(fields[48]) - int(fields[47]))",
        "module broken of preload changes what /proc shows of the process, as setproctitle does",
    ),
    "cuda": (
        "import sys, types\ntorch = sys.modules['torch.cuda'] = types.ModuleType('torch.cuda')\n"
        "torch.is_initialized = lambda: True",
        "module broken of preload uses a GPU while it is imported, and a fork cannot: leave it out of preload",
    ),
}


@pytest.mark.parametrize("how", [*BROKEN, "missing"])
def test_modules_that_cannot_be_preloaded_fail_the_run_with_the_reason(site: Site, how: str) -> None:
    if how == "openmp" and not find_library("gomp"):
        pytest.skip("there is no libgomp")
    code, said = BROKEN.get(how, ("", "module broken of preload cannot be imported by .*No module named 'broken'"))
    if how != "missing":
        (site.root / "broken.py").write_text(code)
    add(site, "job", COUNTS, preload=("broken",))
    engine = site.engine()
    engine.start("job", ONE)
    exit_ = site.until_state(engine, "job", RunState.FAILED).exit
    assert re.search(said, exit_), exit_
    until(lambda: not fork_servers(site))


def test_an_interpreter_that_does_not_start_says_why(site: Site) -> None:
    add(site, "job", COUNTS, env=(("PYTHONHOME", str(site.root)),))
    engine = site.engine()
    engine.start("job", ONE)
    assert "PYTHONHOME" in site.until_state(engine, "job", RunState.FAILED).exit
    add(site, "other", COUNTS, command=("/nowhere/python", "job.py"))
    engine.start("other", ONE)
    assert "/nowhere/python cannot be started" in site.until_state(engine, "other", RunState.FAILED).exit


def test_environments_that_differ_have_servers_of_their_own_as_many_as_there_may_be(site: Site) -> None:
    engine = site.engine()
    reads = "import os\nprint(os.environ['MINE'], flush=True)\n"
    (site.root / "imported.py").write_text("")
    for i in range(servers.MAX_SERVERS + 2):
        add(site, f"job{i}", reads + COUNTS, env=(("MINE", str(i)), ("BEAMER_TRIAL", str(i)), ("RANK", str(i))))
        engine.start(f"job{i}", ONE)
        site.until_step(engine, f"job{i}")
        assert printed(site, f"job{i}").startswith(f"{i}\n")
        until(lambda: len(fork_servers(site)) <= servers.MAX_SERVERS, "those used least to leave")
        assert len(fork_servers(site)) == min(i + 1, servers.MAX_SERVERS)
    site.until_step(engine, "job0", 3)  # Its server is gone, and it runs on.
    add(site, "same", SAYS + COUNTS, env=(("MINE", "5"), ("BEAMER_TRIAL", "other"), ("RANK", "3")))
    before = fork_servers(site)
    engine.start("same", ONE)
    site.until_step(engine, "same")
    assert sorted(fork_servers(site)) == sorted(before)


def test_a_run_has_the_limits_of_its_supervisor(site: Site) -> None:
    engine, (soft, hard) = site.engine(), resource.getrlimit(resource.RLIMIT_NOFILE)
    says = "import resource, sys\nsys.stdout.write(f'limit {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}\\n')\n"
    limits = {"a": soft, "b": soft - 1, "c": soft}
    for job, limit in limits.items():
        add(site, job, says + COUNTS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            engine.start(job, ONE)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        site.until_step(engine, job)
    assert [printed(site, job).split("\n")[0] for job in limits] == [f"limit {limit}" for limit in limits.values()]
    assert imports(site) == len(fork_servers(site)) == 2


def test_a_server_that_was_killed_is_started_anew_and_what_it_forked_runs_on(site: Site) -> None:
    engine = site.engine()
    for job in ("a", "b"):
        add(site, job, SAYS + COUNTS)
    engine.start("a", ONE)
    done = site.until_step(engine, "a")
    [server] = fork_servers(site)
    os.kill(server, signal.SIGKILL)
    until(lambda: not fork_servers(site))
    engine.start("b", ONE)
    site.until_step(engine, "b")
    site.until_step(engine, "a", done + 3)
    assert imports(site) == 2
    assert len(fork_servers(site)) == 1


def test_a_module_that_was_edited_is_imported_anew(site: Site) -> None:
    engine = site.engine()
    (site.root / "helper.py").write_text("VALUE = 1\n")
    says = "import helper, sys\nsys.stdout.write(f'value {helper.VALUE}\\n')\n"
    for job in ("a", "b", "c", "d"):
        add(site, job, says + COUNTS, preload=("imported", "helper"))
    engine.start("a", ONE)
    done = site.until_step(engine, "a")
    (site.root / "helper.py").write_text("VALUE = 22\n")
    for job in ("b", "c", "d"):  # All may find the server that has the old one.
        engine.start(job, ONE)
    for job in ("b", "c", "d"):
        site.until_step(engine, job)
    assert [printed(site, job).split("\n")[0] for job in ("a", "b", "c", "d")] == ["value 1", *["value 22"] * 3]
    assert imports(site) == 2
    site.until_step(engine, "a", done + 3)
    until(lambda: len(fork_servers(site)) == 1, "the old server to leave")


def test_an_engine_that_ends_leaves_the_server_of_jobs_that_run(site: Site) -> None:
    engine = site.engine()
    for job in ("a", "b"):
        add(site, job, SAYS + COUNTS)
    engine.start("a", ONE)
    site.until_step(engine, "a")
    engine.close()
    after = site.engine()
    after.start("b", ONE)
    site.until_step(after, "b")
    assert imports(site) == 1


def test_a_server_that_is_killed_while_it_imports_fails_the_run(site: Site) -> None:
    add(site, "job", SAYS + COUNTS)
    engine = site.engine()
    engine.start("job", ONE)
    until(lambda: imports(site))
    servers.end(site.root / "jobs" / "warm")
    assert "preloads imported has died" in site.until_state(engine, "job", RunState.FAILED).exit


def kill_supervisor(site: Site) -> None:
    known = {*fork_servers(site), *parents(site)}
    for pid in site.supervisors():
        if pid not in known:
            os.kill(pid, signal.SIGKILL)


def kill_parent(site: Site) -> None:
    for pid in parents(site):
        os.kill(pid, signal.SIGKILL)


SPAWNS = "import subprocess\nsubprocess.Popen(['sleep', '1000'])\n"


@pytest.mark.parametrize(("kill", "said"), [(kill_supervisor, "its supervisor died"), (kill_parent, "has forked the ranks")])
def test_ranks_die_with_whom_they_depend_on(site: Site, group: str, kill: Callable[[Site], None], said: str) -> None:
    add(site, "job", SPAWNS + COUNTS)
    engine = site.engine()
    engine.start("job", TWO)
    site.until_step(engine, "job")
    until(lambda: len(site.ranks()) == 4, "both ranks to have started a process")
    kill(site)
    seen = site.until_state(engine, "job", RunState.PARKED, RunState.FAILED)
    assert said in seen.exit
    until(lambda: not site.ranks(), "all of the run to be gone")
    until(lambda: not parents(site))


def test_ranks_die_with_their_parent_whatever_their_supervisor_does(site: Site) -> None:
    add(site, "job", COUNTS)
    engine = site.engine()
    engine.start("job", TWO)
    site.until_step(engine, "job")
    known = {*fork_servers(site), *parents(site)}
    for pid in site.supervisors():
        if pid not in known:
            os.kill(pid, signal.SIGSTOP)
    try:
        kill_parent(site)
        until(lambda: not site.ranks(), "the ranks to be gone")
    finally:
        for pid in site.supervisors():
            os.kill(pid, signal.SIGCONT)


def test_a_rank_that_is_killed_ends_the_run(site: Site) -> None:
    add(site, "job", COUNTS)
    engine = site.engine()
    engine.start("job", TWO)
    site.until_step(engine, "job")
    os.kill(site.ranks()[0], signal.SIGUSR1)
    assert "was killed by SIGUSR1" in site.until_state(engine, "job", RunState.FAILED).exit
    assert not site.ranks()


def test_the_processes_of_a_run_are_below_the_one_that_is_reported(site: Site) -> None:
    orphans = "import os, time\nif not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(1000)\n"
    add(site, "job", orphans + COUNTS)
    engine = site.engine()
    engine.start("job", ONE)
    site.until_step(engine, "job")
    reported = site.see(engine, "job").processes
    assert reported

    def parents_of_ranks() -> list[int]:
        return [process.parent for pid in site.ranks() if (process := stat(pid))]

    until(lambda: parents_of_ranks() == [reported["localhost"].pid] * 2, "the orphan to be adopted")
    engine.stop("job")
    assert not site.ranks()


def test_another_machine_has_servers_of_its_own(site: Site) -> None:
    cable = site.root / "cable"
    cable.touch()
    site.nodes = (LocalNode("far", 2, launcher=RemoteCable(cable), root=str(site.root / "far")),)
    for job in ("a", "b"):
        add(site, job, SAYS + COUNTS)
    engine = site.engine()
    for job in ("a", "b"):
        engine.start(job, on("far"))
        site.until_step(engine, job)
    assert imports(site) == 1
    for job in ("a", "b"):
        engine.stop(job)
    servers.end(site.root / "far" / "warm")
    assert not fork_servers(site)


def test_an_engine_that_ends_leaves_servers_below_a_root_that_others_may_use(site: Site) -> None:
    site.nodes = (LocalNode("localhost", 2, root=str(site.root / "shared")),)
    add(site, "job", SAYS + COUNTS)
    engine = site.engine()
    engine.start("job", ONE)
    site.until_step(engine, "job")
    engine.stop("job")
    engine.close()
    assert len(fork_servers(site)) == 1
    servers.end(site.root / "shared" / "warm")
    assert not fork_servers(site)


@pytest.mark.parametrize("preload", [["imported"], []], ids=["warm", "cold"])
def test_a_search_preloads_what_its_file_says(preload: list[str], tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text(IMPORTED.format(log=str(tmp_path / "imports")).replace("time.sleep", "#"))
    (tmp_path / "train.py").write_text('import imported\nprint(\'{"iteration": 1, "loss": 1}\')')
    search = {
        "name": "s",
        "nodes": [{"name": "here", "gpus": 1}],
        "job": {"command": ["{python}", "train.py", "{x}"], "preload": preload, "request": {"iterations": 1}},
        "grid": {"x": [1, 2, 3]},
    }
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(search))
    places = ("--dir", str(tmp_path / "dir"), "--json", str(tmp_path / "out.json"))
    done = run_here(main, "schedule", str(tmp_path / "search.yaml"), "--policy", "fifo", *places)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())["configurations"]
    assert [one["status"] for one in found] == ["finished"] * 3
    assert len((tmp_path / "imports").read_text().splitlines()) == (1 if preload else 3)
    assert not [pid for pid in of_directory(tmp_path) if b"BEAMER_WARM=" in read(pid, "environ")]
    until(lambda: not of_directory(tmp_path))


def test_more_environments_than_servers_may_begin_at_once(site: Site) -> None:
    engine = site.engine()
    for i in range(servers.MAX_SERVERS + 2):
        add(site, f"job{i}", SAYS + COUNTS, env=(("MINE", str(i)),))
        engine.start(f"job{i}", ONE)
    for i in range(servers.MAX_SERVERS + 2):
        site.until_step(engine, f"job{i}")
    until(lambda: len(fork_servers(site)) == servers.MAX_SERVERS, "those used least to leave")
