"""What makes a run invalid, and a watch that broke off."""

import os
import subprocess
import time

import pytest

from beamer.errors import EmulationError
from topologies.emulation.sampling import Health, PortSample, Sampler, backlogged_rate


def test_a_run_whose_watch_broke_off_is_no_valid_run() -> None:
    deaf = ["sh", "-c", "exec >&-; exec cat >/dev/null"]
    with subprocess.Popen(deaf, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        sampler = Sampler(os.getpid(), {"eth0": 1000}, [reader])
        sampler.start()
        time.sleep(0.1)
        with pytest.raises(EmulationError, match="watched"):
            sampler.stop()


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
    assert Health(0.5, 0.99).findings() == ()
    assert "86%" in Health(0.86, None).findings()[0]
    assert "80%" in Health(0.1, 0.80).findings()[0]
