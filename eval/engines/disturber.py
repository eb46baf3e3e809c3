"""Takes ports that jobs were handed out, and kills ranks, from outside: by the files of a search and /proc."""

import json
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

LOOK_S = 0.003
"""How often the records of jobs are looked at: a port is to be taken before its rank 0 listens."""
AGAIN_S = 0.05
"""When to look again for a rank to kill, where none may be."""
HOLD_S = 4.0
"""For how long a port is held: longer than a program starts."""
_RANK = re.compile(rb"BEAMER_RANKS_OF=[^\0]*/jobs/s_([\w-]+)-[0-9a-f]{8}/")


class Disturber:
    """Disturbs the search in a directory as long as it is entered.

    share: of launches whose port is taken. kills: ranks that are killed in all, of each configuration `most` at most; only
    those in `victims` are. every_s: the mean time between two kills. taken, killed: what was done, by configuration.
    """

    def __init__(
        self, directory: Path, share: float, kills: int, most: int, victims: Mapping[str, float], every_s: float, seed: int
    ) -> None:
        self.taken: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self._directory = directory
        self._share = share
        self._kills = kills
        self._most = most
        self._victims = victims
        self._every_s = every_s
        self._rng = Random(seed)
        self._seen: set[tuple[str, int]] = set()
        self._held: list[tuple[float, socket.socket]] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._take_ports, self._kill_ranks)]

    def __enter__(self) -> "Disturber":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _take_ports(self) -> None:
        rng = Random(self._rng.random())
        while not self._ended.wait(LOOK_S):
            now = time.monotonic()
            for until, one in self._held:
                if until < now:
                    one.close()
            self._held = [(until, one) for until, one in self._held if until >= now]
            for path in self._directory.glob("jobs/*/job"):
                self._look_at(path, rng)
        for _, one in self._held:
            one.close()

    def _look_at(self, path: Path, rng: Random) -> None:
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError):  # The job has just ended.
            return
        launch = (record["job"], record["run"])
        if not record["port"] or launch in self._seen:
            return
        self._seen.add(launch)
        if rng.random() < self._share:
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("", record["port"]))
                one.listen()
            except OSError:  # Rank 0 of the job was faster.
                one.close()
            else:
                self._held.append((time.monotonic() + HOLD_S, one))
                self.taken[record["job"]] += 1

    def _kill_ranks(self) -> None:
        rng = Random(self._rng.random())
        pause_s = 0.0
        while sum(self.killed.values()) < self._kills and not self._ended.wait(pause_s):
            pause_s = AGAIN_S
            found = [(pid, name) for pid, name in _ranks(self._directory) if self._may_be_killed(name)]
            if found:
                pid, name = rng.choice(found)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed[name] += 1
                    pause_s = rng.uniform(0.0, 2 * self._every_s)

    def _may_be_killed(self, name: str) -> bool:
        return name in self._victims and self.killed[name] < self._most


def _ranks(directory: Path) -> list[tuple[int, str]]:
    """Return the ranks of a search's jobs with the names of their configurations."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            environment = path.read_bytes()
            mark = _RANK.search(environment)
            if mark and os.fsencode(directory) in environment:
                found.append((int(path.parent.name), mark[1].decode()))
    return found
