"""Hostile OpenFlow input: a bounded number from a fixed seed, and whether a fault of the driver would be found."""

import random
import time

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from controller.openflow.channel import Channel
from eval.fuzz.mutations import MAX_BYTES, mutated
from eval.fuzz.openflow import run
from eval.fuzz.turns import TurnProbe
from tests.support import openflow_samples as samples
from tests.support.tiers import long

SEED = 1


@pytest.mark.parametrize("inputs", [30, *long(60)])
def test_nothing_that_a_peer_sends_disturbs_the_good_switch(inputs: int) -> None:
    findings = run(seconds=60, seed=SEED, most_inputs=inputs)
    assert findings.failures == ()
    assert findings.inputs == inputs
    assert findings.accepted > inputs / 12
    assert findings.refused > inputs / 3


def test_an_exception_that_nobody_handles_is_a_finding_with_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Channel._read

    def faulty(self: Channel, frame: bytes) -> object:
        if len(frame) > 500 and frame[1] != ofp.OFPT_MULTIPART_REPLY:  # The good switch sends what its tables can do.
            raise KeyError("a fault")
        return read(self, frame)

    monkeypatch.setattr(Channel, "_read", faulty)
    findings = run(seconds=60, seed=SEED, most_inputs=100)
    (failure,) = findings.failures
    assert "KeyError('a fault')" in failure.what
    assert any(len(bytes.fromhex(sent)) > 500 for sent in failure.data)


def test_a_turn_that_lasts_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    read, patience_s = Channel._read, 1.0

    def lasting(self: Channel, frame: bytes) -> object:
        if len(frame) > 500:
            time.sleep(2.5 * patience_s)
        return read(self, frame)

    monkeypatch.setattr(Channel, "_read", lasting)
    monkeypatch.setattr("eval.fuzz.openflow.PATIENCE_S", patience_s)
    findings = run(seconds=60, seed=SEED, most_inputs=100)
    assert [failure.what for failure in findings.failures] == ["no generation was installed for 1 s"]


def test_changes_are_the_same_for_the_same_seed_and_bounded() -> None:
    frames = tuple(samples.READ.values())
    first, second = ([mutated(rng, data, frames) for data in frames * 50] for rng in (random.Random(SEED), random.Random(SEED)))
    assert first == second
    assert max(map(len, first)) <= MAX_BYTES
    assert sum(data not in frames for data in first) > 0.9 * len(first)


def test_late_turns_are_counted() -> None:
    probe = TurnProbe()
    probe.late_s.extend([0.0] * 98 + [0.3, 0.5])
    assert (probe.quantile(0.5), probe.quantile(0.99), probe.slower_than(0.25)) == (0.0, 0.5, 2)
    assert TurnProbe().quantile(0.99) == 0.0
