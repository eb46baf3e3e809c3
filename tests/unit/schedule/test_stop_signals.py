"""The third signal ends a process whose main thread never returns, with its last words; fewer are counted."""

import os
import signal
import subprocess
import sys
import time

import pytest

from beamer.schedule.stop_signals import StopSignals
from tests.support.checkout import ROOT

SPINNING = """
import time
from beamer.schedule import stop_signals
from beamer.schedule.stop_signals import StopSignals

stop_signals.LAST_WORDS_S = {limit_s}

def words():
    {words}
    return "s/a is left\\n"

with StopSignals(words) as stops:
    print("ready", flush=True)
    while True:
        {step}
"""


@pytest.mark.parametrize("step", ["pass", "time.sleep(1000)"])
@pytest.mark.parametrize(
    ("words", "limit_s", "said"),
    [("pass", 60.0, "s/a is left\n"), ("raise OSError", 60.0, ""), ("time.sleep(1000)", 0.1, "")],
)
def test_the_third_signal_ends_a_process_that_never_returns(step: str, words: str, limit_s: float, said: str) -> None:
    program = SPINNING.format(step=step, words=words, limit_s=limit_s)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            assert process.poll() is None
            process.send_signal(number)
            time.sleep(0.1)
        # A signal that comes while the same one is pending is lost: the process may not have run for so long.
        until_s = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until_s:
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (128 + signal.SIGTERM, said)


def test_two_signals_are_counted_and_handled_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopSignals(lambda: "") as stops:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stops.numbers == [signal.SIGTERM, signal.SIGINT]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert signal.set_wakeup_fd(-1) == -1
