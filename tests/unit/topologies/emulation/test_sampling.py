"""What makes a run invalid, and sampling that broke off."""

import os
import subprocess
import threading
import time

import pytest

from beamer.errors import EmulationError
from tests.emulation.repetition import until_valid
from topologies.emulation import run_queue, sampling
from topologies.emulation.run_queue import AGENTS, TRAINERS, ProcessorTime, Thread
from topologies.emulation.sampling import JUDGED_PARTS, WAITING_LIMIT, Health, PortSample, Sampler, backlogged_rate


def test_a_run_whose_sampling_broke_off_is_an_error() -> None:
    closed_output = ["sh", "-c", "exec >&-; exec cat >/dev/null"]
    with subprocess.Popen(closed_output, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        sampler = Sampler(os.getpid(), {"eth0": 1000}, [reader], dict)
        sampler.start()
        time.sleep(0.1)
        with pytest.raises(EmulationError, match="ended before"):
            sampler.stop()


def test_waiting_is_sampled_up_to_the_end_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    read, counts = threading.Event(), ProcessorTime()

    def reading(pid: int) -> dict[Thread, ProcessorTime]:
        found = {(pid, 1): counts}
        read.set()
        return found

    monkeypatch.setattr(run_queue, "read", reading)
    monkeypatch.setattr(sampling, "is_counted", lambda: True)
    sampler = Sampler(os.getpid(), {}, [], lambda: {os.getpid(): "part"})
    sampler.start()
    assert read.wait(10)
    counts = ProcessorTime(30, 10)  # within the second until the next sample
    assert sampler.stop().waiting_shares == {"part": 0.25}


def test_only_intervals_that_began_with_enough_waiting_count() -> None:
    samples = [
        PortSample(0.0, 0, 1000),
        PortSample(1.0, 1000, 1000),
        PortSample(2.0, 1900, 999),
        PortSample(3.0, 1900, 0),
    ]
    assert backlogged_rate(samples, 8000) == 0.95
    assert backlogged_rate(samples[2:], 8000) is None


def test_a_busy_machine_makes_a_run_invalid() -> None:
    assert Health(0.5, 0.99, {}).findings() == ()
    assert "86%" in Health(0.86, None, {}).findings()[0]
    assert "80%" in Health(0.1, 0.80, {}).findings()[0]


@pytest.mark.parametrize("part", JUDGED_PARTS)
def test_a_run_whose_processes_waited_for_a_processor_is_invalid(part: str) -> None:
    waiting = dict.fromkeys(JUDGED_PARTS, 0.1)
    assert Health(0.5, None, {**waiting, part: WAITING_LIMIT}).findings() == ()
    (finding,) = Health(0.5, None, {**waiting, part: WAITING_LIMIT + 0.1}).findings()
    assert part in finding
    assert f"{WAITING_LIMIT + 0.1:.0%}" in finding
    assert f"limit {WAITING_LIMIT:.0%}" in finding


def test_waiting_of_trainers_and_agents_does_not_decide() -> None:
    assert Health(0.5, None, {AGENTS: 0.99, TRAINERS: 0.99}).findings() == ()


def test_a_kernel_that_does_not_count_waiting_leaves_the_other_rules() -> None:
    assert Health(0.5, 0.99, None).findings() == ()
    assert len(Health(0.9, 0.5, None).findings()) == 2


def test_an_invalid_run_is_repeated_until_one_is_valid() -> None:
    runs = iter([("first", ("busy",)), ("second", ()), ("third", ())])
    assert until_valid(lambda: next(runs)) == "second"


def test_a_run_that_stays_invalid_fails_with_every_reason() -> None:
    reasons = iter(["one", "two", "three", "four"])
    with pytest.raises(pytest.fail.Exception, match=r"run 1: one\nrun 2: two\nrun 3: three"):
        until_valid(lambda: (None, (next(reasons),)))
    assert next(reasons) == "four"
