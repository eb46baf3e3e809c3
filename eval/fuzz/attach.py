"""Hostile processes at a host agent's Unix socket, beside a worker that holds its lease all the time.

a line          of a worker's request, changed; without an end; too long; several
a connection    that says nothing, closes at once or in one direction, or never reads
descriptors     sent along, which the agent has not asked for
"""

import array
import json
import os
import random
import resource
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from beamer.client import lease
from beamer.studies.model import MAX_RANK
from eval.fuzz.findings import Findings
from eval.fuzz.json_values import hostile_json, to_json
from eval.fuzz.loops import PATIENCE_S, LoopThread
from eval.fuzz.mutations import mutated
from eval.fuzz.tally import Tally
from hostagent.workers.attach import AttachServer, listening

AGENT = "h1"
GOOD = ("good", "t", 0)
ANSWER_S = 0.05  # An answer is awaited so long after the last byte: it follows within a turn or two.
SILENT = 64  # So many connections are left open: fewer than one user may have, as the good worker is of the same user.
DESCRIPTORS = 32  # So many descriptors are sent with a message.
STRAY = 16  # The process may have so many more descriptors open at the end than at first.


def run(seconds: float, seed: int, most_inputs: int | None = None) -> Findings:
    """Try inputs for a time, or so many of them if that is sooner, and return what was found."""
    with tempfile.TemporaryDirectory(prefix="beamer-fuzz-") as folder:
        path = Path(folder) / "agent.sock"
        server = AttachServer(AGENT, lambda: None)
        with listening(path) as sock, LoopThread(server.serve(sock), "beamer.hostagent") as loop:
            fuzzer = AttachFuzzer(path, server, loop, random.Random(seed))
            fuzzer.run(time.monotonic() + seconds, most_inputs)
            return fuzzer.tally.findings("attach", seed)


class AttachFuzzer:
    """Tries one connection after the other, and looks after each whether the good worker is still attached."""

    def __init__(self, path: Path, server: AttachServer, loop: LoopThread, rng: random.Random) -> None:
        self.tally = Tally(loop.probe)
        self._path = path
        self._server = server
        self._loop = loop
        self._rng = rng
        self._silent: list[socket.socket] = []

    def run(self, until: float, most_inputs: int | None) -> None:
        """Try inputs until a time, in monotonic seconds, or so many."""
        study, trial, rank = GOOD
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        good = lease.attach(study, trial, rank, path=str(self._path))
        if good is None:
            raise RuntimeError("the good worker was not attached")
        before = _open_descriptors()
        try:
            while self.tally.goes_on(until, most_inputs):
                refused, sent = self._try_one()
                self.tally.add(refused, self._loop.disturbance() or self._of_good(), [sent])
            self._forget_silent(0)
            if not self._settles(before):
                self.tally.fail(f"{_open_descriptors() - before} descriptors more are open than before")
        finally:
            good.close()
            self._forget_silent(0)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def _of_good(self) -> str | None:
        """Return what has become of the good worker, None if it is attached."""
        held = self._loop.ask(lambda: [(one.study, one.trial, one.rank) for one in self._server.leases])
        return None if GOOD in held else f"the good worker has lost its lease; held are {held}"

    def _try_one(self) -> tuple[bool, bytes]:
        """Connect once; return whether it was refused, and what was sent."""
        kind = self._rng.choice(_KINDS)
        with suppress(OSError):
            return kind(self)
        return True, b""

    def _line(self) -> tuple[bool, bytes]:
        rng = self._rng
        request = {
            "study": rng.choice(("a", "good")),
            "trial": "x",
            "rank": rng.choice((0, 7, MAX_RANK, MAX_RANK + 1, 2**31 - 1)),
        }
        line = to_json(hostile_json(rng, request) if rng.random() < 0.6 else request) + b"\n"
        data = mutated(rng, line, (line,)) if rng.random() < 0.5 else line
        return self._says(data)

    def _deep(self) -> tuple[bool, bytes]:
        data = self._rng.choice((b"[" * 100_000, b'{"study":' * 2000, b"1" * 10_000, b"x" * 1_000_000, b"\n" * 1000))
        return self._says(data + self._rng.choice((b"", b"\n")))

    def _closing(self) -> tuple[bool, bytes]:
        line = json.dumps({"study": "a", "trial": "x", "rank": 1}).encode()
        with closing(self._connected()) as sock:
            sock.sendall(line[: self._rng.randrange(len(line) + 1)])
            sock.shutdown(self._rng.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))
        return True, line

    def _silently(self) -> tuple[bool, bytes]:
        """Leave a connection open, which says nothing, or nothing more."""
        line = to_json({"study": "a", "trial": "s", "rank": len(self._silent)}) + b"\n"
        said = self._rng.choice((b"", b"{", line))
        sock = self._connected()
        self._silent.append(sock)
        sock.sendall(said)
        self._forget_silent(SILENT)
        return False, said

    def _descriptors(self) -> tuple[bool, bytes]:
        line = to_json({"study": "a", "trial": "x", "rank": 1}) + b"\n"
        with closing(self._connected()) as sock, open(os.devnull) as file:
            sent = array.array("i", [file.fileno()] * DESCRIPTORS)
            sock.sendmsg([line], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
            return not _answer(sock), line

    def _says(self, data: bytes) -> tuple[bool, bytes]:
        with closing(self._connected()) as sock:
            with suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(data)
            return b'"attached"' not in _answer(sock), data[:10_000]

    def _connected(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE_S)
        sock.connect(str(self._path))
        return sock

    def _forget_silent(self, most: int) -> None:
        while len(self._silent) > most:
            self._silent.pop(0).close()

    def _settles(self, before: int) -> bool:
        """Wait until what was opened for peers that are gone is closed again; return whether it is."""
        deadline = time.monotonic() + PATIENCE_S
        while _open_descriptors() > before + STRAY:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def _answer(sock: socket.socket) -> bytes:
    sock.settimeout(ANSWER_S)
    try:
        return sock.recv(65536)
    except OSError:
        return b""


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


_KINDS: Sequence[Callable[[AttachFuzzer], tuple[bool, bytes]]] = (
    *(AttachFuzzer._line, AttachFuzzer._line, AttachFuzzer._line, AttachFuzzer._deep),
    *(AttachFuzzer._closing, AttachFuzzer._silently, AttachFuzzer._descriptors),
)
