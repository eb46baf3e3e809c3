"""Samples the emulated machine during a run: is the network the bottleneck, or the machine?

Three signs make a run invalid: Open vSwitch's busiest thread is nearly a whole core; a link whose queue is never empty carries
clearly less than its rate; the run's own processes wait for a processor instead of running.
"""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from beamer.errors import EmulationError
from beamer.network.plan import QUEUES
from topologies.emulation.accounting import QueueBytes
from topologies.emulation.run_queue import CONTROLLER, SWITCHES, DelayMeter, ProcessorTime, is_counted

THREAD_LIMIT = 0.85  # A share of a core, the most that one thread can have.
RATE_LIMIT = 0.85  # A share of a link's rate.
# The share of the time in which a process had something to run, but waited for a processor. At 0.6 everything it does takes 2.5
# times as long as on a processor of its own. Five alike searches ran under load averages of 7 to 46. Mean stage completion
# times were 0 to 8 % above the simulated ones up to a share of 0.58 (3 to 5 % on an idle machine). They were 7 to 8 % above at
# 0.68, and under `beamer` 20 to 26 % from 0.81 on.
WAITING_LIMIT = 0.6
# Agents and the trainers of a job wake together and wait for each other, 0.6 to 0.9 of their time in accurate runs already.
JUDGED_PARTS = (SWITCHES, CONTROLLER)
ROOT_MINOR, CLASS_MINOR = 0x1, 0x10  # The host agent makes 1:1 for the whole port and 1:(0x10+k) for managed class k.
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class PortSample:
    """A port's root queue at one moment. backlog_bytes: waiting in it; sent_bytes: since it was made."""

    at_s: float
    sent_bytes: int
    backlog_bytes: int


@dataclass(frozen=True)
class Health:
    """What the samples came to.

    busiest_thread: largest share of a core that one thread of Open vSwitch used over a second. backlogged_rate: smallest share
    of its rate that a port carried while it certainly had packets waiting, None if no port was ever so for long.
    waiting_shares: by part of the run, the share of the time in which it had something to run that it waited for a processor;
    None where the kernel does not count that. processor: by part of the run, what it had of the processors, None as above.
    """

    busiest_thread: float
    backlogged_rate: float | None
    waiting_shares: Mapping[str, float] | None
    processor: Mapping[str, ProcessorTime] | None = None

    def findings(self) -> tuple[str, ...]:
        """Return what makes the run invalid; empty for a valid one."""
        found = []
        if self.busiest_thread > THREAD_LIMIT:
            found.append(f"Open vSwitch's busiest thread took {self.busiest_thread:.0%} of a core (limit {THREAD_LIMIT:.0%})")
        if self.backlogged_rate is not None and self.backlogged_rate < RATE_LIMIT:
            found.append(f"a link with backlog carried {self.backlogged_rate:.0%} of its rate (limit {RATE_LIMIT:.0%})")
        for part in JUDGED_PARTS:
            if (share := (self.waiting_shares or {}).get(part, 0.0)) > WAITING_LIMIT:
                waited = f"{part} waited for a processor in {share:.0%} of the time in which it had work"
                found.append(f"{waited} (limit {WAITING_LIMIT:.0%})")
        return tuple(found)


def backlogged_rate(samples: list[PortSample], rate_bps: int, at_least_s: float = 0.5) -> float | None:
    """Return the share of `rate_bps` carried over the intervals that began with at least as much waiting as fits into them.

    Over such an interval the port cannot have run dry. None below `at_least_s` seconds of them.
    """
    seconds = sent = 0.0
    for before, after in pairwise(samples):
        length = after.at_s - before.at_s
        if 8 * before.backlog_bytes >= rate_bps * length:
            seconds += length
            sent += after.sent_bytes - before.sent_bytes
    return 8 * sent / (seconds * rate_bps) if seconds >= at_least_s else None


# One process answers many times, so that a reading costs a fraction of a millisecond.
READER = ["stdbuf", "-oL", "tc", "-s", "-j", "-batch", "-"]


class Sampler:
    """Samples ports and Open vSwitch's threads in the background between `start` and `stop`.

    rates_bps: by interface. readers: running `READER` processes, one per namespace that holds some of these interfaces. parts:
    returns the processes whose waiting is measured, see `DelayMeter`; it is called in the sampling thread.
    """

    def __init__(
        self,
        vswitchd: int,
        rates_bps: Mapping[str, int],
        readers: Sequence["subprocess.Popen[str]"],
        parts: Callable[[], Mapping[int, str]],
        interval_s: float = 0.025,
    ) -> None:
        self._vswitchd = vswitchd
        self._delays = DelayMeter(parts) if is_counted() else None
        self._rates = rates_bps
        self._readers = readers
        self._interval = interval_s
        self._ports: dict[str, list[PortSample]] = {name: [] for name in rates_bps}
        self._threads: list[tuple[float, dict[str, int]]] = []
        self._ending = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def start(self) -> None:
        """Begin sampling."""
        self._thread.start()

    def stop(self) -> Health:
        """End sampling and its readers and return what it came to. Raises `EmulationError` if it had broken off before."""
        self._ending.set()
        self._thread.join()
        for reader in self._readers:
            reader.terminate()
        if self._failure is not None:
            raise EmulationError(f"sampling ended before the run: {self._failure!r}") from self._failure
        rates = [backlogged_rate(samples, self._rates[name]) for name, samples in self._ports.items()]
        totals = None if self._delays is None else self._delays.totals
        shares = None if totals is None else {part: time.waiting_share for part, time in totals.items()}
        return Health(self._busiest(), min((r for r in rates if r is not None), default=None), shares, totals)

    def _busiest(self) -> float:
        return max(
            (
                (ticks - before[1].get(thread, ticks)) / _TICK / (after[0] - before[0])
                for before, after in pairwise(self._threads)
                for thread, ticks in after[1].items()
            ),
            default=0.0,
        )

    def _sample(self) -> None:
        try:
            self._sample_until_ended()
        except (OSError, ValueError) as error:  # a reader or the daemon itself is gone
            self._failure = error

    def _sample_until_ended(self) -> None:
        due = time.monotonic()
        while not self._ending.is_set():
            now = time.monotonic()
            if not self._threads or now - self._threads[-1][0] >= 1.0:
                self._threads.append((now, _thread_ticks(self._vswitchd)))
                if self._delays is not None:
                    self._delays.sample()
            for reader in self._readers:
                self._read(reader)
            due = max(due + self._interval, time.monotonic())
            self._ending.wait(due - time.monotonic())
        if self._delays is not None:
            self._delays.sample()  # Threads are not sampled: over a part of a second the kernel's clock ticks are too coarse.

    def _read(self, reader: "subprocess.Popen[str]") -> None:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write("qdisc show\n")
        reader.stdin.flush()
        answer = json.loads(reader.stdout.readline())
        now = time.monotonic()
        for entry in answer:
            if entry["kind"] == "htb" and entry["dev"] in self._ports:
                self._ports[entry["dev"]].append(PortSample(now, entry["bytes"], entry["backlog"]))


def _thread_ticks(pid: int) -> dict[str, int]:
    ticks = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the thread has ended
        ticks[task.name] = int(fields[11]) + int(fields[12])
    return ticks


# iproute2 6.1 prints classes as text even when asked for JSON.
_CLASS = re.compile(r"class htb 1:([0-9a-f]+) .*?\n Sent (\d+) bytes \d+ pkt \(dropped (\d+),", re.DOTALL)


def queue_bytes(interface: str, enter: Sequence[str] = ()) -> tuple[QueueBytes, ...]:
    """Read the queues of `interface` with tc; `enter` is the command prefix of the namespace that holds it."""
    command = [*enter, "tc", "-s", "class", "show", "dev", interface]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    queues = []
    for match in _CLASS.finditer(text):
        minor = int(match[1], 16)
        if minor != ROOT_MINOR:
            klass = minor - CLASS_MINOR if CLASS_MINOR <= minor < CLASS_MINOR + QUEUES else None
            queues.append(QueueBytes(interface, klass, int(match[2]), int(match[3])))
    return tuple(queues)
