"""A program that trains on the GPU, and the process that makes the driver's calls for it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from beamer.errors import BeamerError, EngineError
from eval.nvidia.site import ROOT, Site

LOOK_S = 0.002
WATCH_S = 0.03
"""Between two looks at what is free on the GPU: moves of gibibytes take longer."""
END_S = 10.0
LINES_BYTES = 4096
"""More than two lines of a trace have."""
SHOWN = 400
"""Characters of what a program that failed printed last."""


class OutOfTimeError(BeamerError):
    """A part has used its time up."""


def wait(condition: Callable[[], bool], until_s: float, what: str) -> None:
    """Wait for a condition. until_s: monotonic time. Raises `OutOfTimeError`."""
    while not condition():
        if time.monotonic() > until_s:
            raise OutOfTimeError(f"no time was left to wait for {what}")
        time.sleep(LOOK_S)


def steps(trace: Path) -> dict[int, str]:
    """Return the digest after each iteration of a trace; a line that is being written is left out."""
    try:
        lines = trace.read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    found = [json.loads(line) for line in lines if line.endswith("}\n")]
    return {one["iteration"]: one["digest"] for one in found}


class GpuProgram:
    """A program on the site's GPU as long as it is entered; then it is killed. folder: of its files."""

    def __init__(self, site: Site, folder: Path, name: str, arguments: list[str]) -> None:
        self.trace = folder / f"{name}.trace"
        self._output = folder / f"{name}.output"
        self._command = [sys.executable, *arguments]
        ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
        self._env = {**site.env, **ranks, "CUDA_VISIBLE_DEVICES": site.device}
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> "GpuProgram":
        with open(self._output, "wb") as output:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def done(self) -> int:
        """How many iterations it has done: as the last whole line of its trace says."""
        try:
            with open(self.trace, "rb") as file:
                file.seek(max(os.stat(file.fileno()).st_size - LINES_BYTES, 0))
                lines = file.read().rpartition(b"\n")[0].splitlines()
        except FileNotFoundError:
            return 0
        return int(json.loads(lines[-1])["iteration"]) if lines else 0

    def comes_to(self, iteration: int, until_s: float) -> None:
        """Wait until it has done so many iterations. Raises `EngineError` where it ends before."""

        def is_there() -> bool:
            if self.done >= iteration:
                return True
            if self._process.poll() is not None:
                raise EngineError(f"a program ended before iteration {iteration}: {self._said()}")
            return False

        wait(is_there, until_s, f"iteration {iteration}")

    def ends(self, until_s: float) -> None:
        """Wait for its end. Raises `EngineError` where it fails."""
        wait(lambda: self._process.poll() is not None, until_s, "the end of a program")
        if self._process.returncode:
            raise EngineError(f"a program ended with {self._process.returncode}: {self._said()}")

    def stop(self, until_s: float) -> float:
        """Freeze it by SIGSTOP, and return the seconds until all of its threads stood."""
        begun_s = time.perf_counter()
        os.kill(self.pid, signal.SIGSTOP)
        while not self._stands():
            if time.monotonic() > until_s:
                raise OutOfTimeError("no time was left to wait for a program to freeze")
        return time.perf_counter() - begun_s

    def go_on(self, until_s: float) -> float:
        """Thaw it, and return the seconds until its next iteration."""
        before, begun_s = self.done, time.perf_counter()
        os.kill(self.pid, signal.SIGCONT)
        self.comes_to(before + 1, until_s)
        return time.perf_counter() - begun_s

    def _stands(self) -> bool:
        states = [path.read_text().rpartition(") ")[2][:1] for path in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        return all(state in "TtZX" for state in states)

    def _said(self) -> str:
        return self._output.read_text(errors="replace").strip()[-SHOWN:]


class Driver:
    """Has a process make the driver's calls, as long as it is entered."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._stack = ExitStack()
        self._errors: IO[str]
        self._process: subprocess.Popen[str]

    def __enter__(self) -> "Driver":
        self._errors = self._stack.enter_context(tempfile.TemporaryFile("w+"))
        command = [sys.executable, "-m", "eval.nvidia.driver_process"]
        pipe = subprocess.PIPE
        self._process = self._stack.enter_context(
            subprocess.Popen(command, cwd=ROOT, env=self._site.env, stdin=pipe, stdout=pipe, stderr=self._errors, text=True)
        )
        self._stack.callback(self._process.kill)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def call(self, name: str, pid: int, until_s: float) -> float:
        """Make a call for a process, and return the seconds that it took. Raises `EngineError` where it is refused."""
        return float(self._asked({"call": name, "pid": pid}, until_s)["seconds"])

    def free_bytes(self, until_s: float) -> int:
        """Return the free memory of the GPU."""
        return int(self._asked({"call": "free", "gpu": self._site.uuid}, until_s)["value"])

    def _asked(self, request: Mapping[str, Any], until_s: float) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        late = threading.Timer(max(until_s - time.monotonic(), 0.0), self._process.kill)
        late.start()
        try:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late.cancel()
        if not line:
            self._process.wait(END_S)
            if time.monotonic() >= until_s:
                raise OutOfTimeError(f"the driver did not answer {request['call']} in time")
            self._errors.seek(0)
            raise EngineError(f"the driver's process ended: {self._errors.read().strip()[-SHOWN:]}")
        answer: dict[str, Any] = json.loads(line)
        if answer["error"]:
            raise EngineError(answer["error"])
        return answer


class WatchedMemory:
    """What becomes free on the GPU, and what is taken there, as long as it is entered: the sums of all changes, in bytes."""

    def __init__(self, driver: Driver, until_s: float) -> None:
        self.freed = self.taken = 0
        self._driver = driver
        self._until_s = until_s
        self._last = 0
        self._over = threading.Event()
        self._error: BeamerError | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "WatchedMemory":
        self._last = self._driver.free_bytes(self._until_s)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what has kept it from watching."""
        if self._error is not None:
            raise self._error

    def _watch(self) -> None:
        try:
            while not self._over.wait(WATCH_S):
                free = self._driver.free_bytes(self._until_s)
                self.freed += max(free - self._last, 0)
                self.taken += max(self._last - free, 0)
                self._last = free
        except BeamerError as error:
            self._error = error
