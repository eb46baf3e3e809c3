"""Caps in an emulated run: what capped jobs send while they have something to send, and that no cap outlives its plan."""

import json
import re
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.conftest import HERE
from tests.emulation.leftovers import leftovers
from topologies.emulation.exchange import RunConfig
from topologies.emulation.supervisor import EmulatedRun, emulated_run

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(300), pytest.mark.alone]

CAPPED = HERE / "capped.yaml"
TOLERANCE = 0.05
SAMPLED_S = 15.0
INTERVAL_S = 0.5
PATIENCE_S = 120.0
RUNS = 3
ITS_SHARE_BPS = 20_000_000 / 4  # A job gets so much of the link, however many others want more.
FIRST_CAPPED_MINOR = 0x100
UNITS = {"bit": 1, "Kbit": 10**3, "Mbit": 10**6}
CLASS = re.compile(r"class htb 1:([0-9a-f]+) .*? ceil (\d+)([KM]?bit) .*?\n Sent (\d+) bytes.*?\n backlog (\d+)b", re.DOTALL)


@pytest.mark.long
def test_capped_jobs_keep_to_their_rates_and_no_cap_outlives_its_plan(tmp_path: Path) -> None:
    """What is above a cap is an error at once; what is below may be a busy machine, and is measured again."""
    for _ in range(RUNS):
        sent, least, most = _one_run(tmp_path)
        print("sent", sent, "allowed", least, "to", most, "by whether the cap is below a job's even share of the link")
        assert least[True], "nothing was held back"
        assert sent[True] <= (1 + TOLERANCE) * most[True]
        assert sent[False] <= (1 + TOLERANCE) * most[False], "what the link holds back more than the cap"
        if sent[True] >= (1 - TOLERANCE) * least[True]:
            return
    pytest.fail(f"{RUNS} runs, each more than {TOLERANCE:.0%} below the caps")


def _one_run(logs: Path) -> tuple[dict[bool, float], dict[bool, float], dict[bool, float]]:
    """Return the bits that capped classes sent while they had any to send, and the least and most that their caps allowed.

    By whether the cap is below a job's even share of the link.
    """
    with emulated_run(RunConfig(CAPPED, "fifo", mode="rates"), keep_logs=logs) as run:
        before = leftovers(run.run.id)
        # a packet of 64 KiB leaves at once, and is a second's worth of the least cap
        run.execute("ip", "link", "set", "dev", "h1-eth0", "gso_max_segs", "1", host="h1")
        run.start_studies()
        samples = []
        began = time.monotonic()
        while time.monotonic() < began + SAMPLED_S:
            asked_s = time.monotonic()
            seen = _capped(run)
            samples.append((asked_s, seen, time.monotonic()))  # it was read between the two
            time.sleep(INTERVAL_S)
        sent, least, most = (dict.fromkeys((True, False), 0.0) for _ in range(3))
        for (asked_s, earlier, answered_s), (then_asked_s, later, then_answered_s) in pairwise(samples):
            for minor, (ceil_bps, sent_bytes, backlog) in earlier.items():
                same = minor in later and later[minor][0] == ceil_bps
                if same and backlog and later[minor][2]:  # it had something to send, under one cap
                    below = ceil_bps < ITS_SHARE_BPS
                    sent[below] += 8 * (later[minor][1] - sent_bytes)
                    least[below] += ceil_bps * (then_asked_s - answered_s)
                    most[below] += ceil_bps * (then_answered_s - asked_s)

        deadline = time.monotonic() + PATIENCE_S
        while len(_plan(run)) > 1:
            assert time.monotonic() < deadline, "the studies do not end"
            time.sleep(0.5)
        time.sleep(1.0)
        assert {job["cap_bps"] for job in _plan(run).values()} <= {None}, "there is no other job"
        assert not _capped(run)
        run.finish_studies(PATIENCE_S)
        assert not _capped(run)
    assert not leftovers(run.run.id, before.namespaces)
    return sent, least, most


def _plan(run: EmulatedRun) -> dict[str, Any]:
    code = f"from urllib.request import urlopen; print(urlopen('{run.parts['url']}/v1/plan', timeout=5).read().decode())"
    jobs: dict[str, Any] = json.loads(run.execute(sys.executable, "-c", code))["jobs"]
    return jobs


def _capped(run: EmulatedRun) -> dict[int, tuple[int, int, int]]:
    """Return ceiling, bytes sent and bytes waiting of h1's classes with a cap, by the minor number of each."""
    shown = run.execute("tc", "-s", "class", "show", "dev", "h1-eth0", host="h1")
    found = {int(m[1], 16): (int(m[2]) * UNITS[m[3]], int(m[4]), int(m[5])) for m in CLASS.finditer(shown)}
    return {minor: values for minor, values in found.items() if minor >= FIRST_CAPPED_MINOR}
