"""The deterministic trainer: a step depends on the state and the number of ranks, and survives the checkpoint."""

import json
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from beamer.testing.trainer import (
    STOP,
    Options,
    SignalRequests,
    Star,
    State,
    apply,
    data,
    gradient,
    in_order,
    main,
    shard,
    train,
)
from eval.engines.undisturbed import undisturbed_digests

OPTIONS = Options(iterations=12)


def test_ranks_share_a_batch_and_their_sum_is_its_gradient() -> None:
    state, samples = State.initial(0), data(0)
    alone = shard(state, OPTIONS, 1, 0, samples)
    for world in (2, 3, 5):
        parts = [shard(state, OPTIONS, world, rank, samples) for rank in range(world)]
        assert np.allclose(in_order(parts), alone, rtol=1e-9, atol=1e-9)


def test_the_gradient_is_that_of_the_loss() -> None:
    state, (points, classes) = State.initial(3), data(3)
    slope = gradient(state.parameters, points[:20], classes[:20])
    rng = np.random.default_rng(0)
    for index in rng.integers(0, len(state.parameters), 20):
        moved = [state.parameters.copy(), state.parameters.copy()]
        moved[0][index] -= 1e-6
        moved[1][index] += 1e-6
        low, high = (gradient(one, points[:20], classes[:20])[-2] for one in moved)
        assert np.isclose((high - low) / 2e-6, slope[index], rtol=1e-4, atol=1e-5)


def test_a_checkpoint_holds_all_that_the_next_step_depends_on(tmp_path: Path) -> None:
    state, samples = State.initial(0), data(0)
    for _ in range(5):
        apply(state, OPTIONS, shard(state, OPTIONS, 1, 0, samples))
    state.save(tmp_path / "checkpoint")
    again = State.load(tmp_path / "checkpoint")
    assert (again.digest(), again.iteration) == (state.digest(), 5)
    for one in (state, again):
        apply(one, OPTIONS, shard(one, OPTIONS, 1, 0, samples))
    assert again.digest() == state.digest()


def test_digests_tell_worlds_and_seeds_apart() -> None:
    assert undisturbed_digests(OPTIONS, [2] * 12) == undisturbed_digests(OPTIONS, [2] * 12)
    assert undisturbed_digests(OPTIONS, [2] * 12)[-1] != undisturbed_digests(OPTIONS, [3] * 12)[-1]
    assert undisturbed_digests(OPTIONS, [2] * 12)[-1] != undisturbed_digests(Options(iterations=12, seed=1), [2] * 12)[-1]


def test_what_one_rank_is_told_all_learn_with_the_sum(own_port: int) -> None:
    def rank(number: int) -> tuple[list[float], int]:
        with closing(Star(number, 3, "127.0.0.1", own_port)) as star:
            total, asked = star.sum(np.array([1.0, number]), STOP if number == 2 else 0)
        return total.tolist(), asked

    with ThreadPoolExecutor(3) as ranks:
        assert list(ranks.map(rank, range(3))) == [([3.0, 3.0], STOP)] * 3


def test_one_rank_alone_runs_to_its_end(tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("BEAMER_CHECKPOINT", str(tmp_path / "checkpoint"))
    main(["--iterations", "12", "--trace", str(tmp_path / "trace")])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["iteration"] for line in printed] == list(range(13))
    digests = [json.loads(line)["digest"] for line in (tmp_path / "trace").read_text().splitlines()]
    assert digests == undisturbed_digests(OPTIONS, [1] * 12)
    assert State.load(tmp_path / "checkpoint").digest() == digests[-1]


def test_ranks_stand_at_a_gate_together_and_hear_there(own_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    checkpoint, trace, gate = (tmp_path / name for name in ("checkpoint", "trace", "gate"))

    def ranks(asked: list[SignalRequests], pool: ThreadPoolExecutor) -> list[Future[None]]:
        def rank(number: int) -> None:
            with closing(Star(number, 2, "127.0.0.1", own_port)) as star, trace.open("a") as file:
                train(OPTIONS, number, 2, star, asked[number], checkpoint, file, gate)

        return [pool.submit(rank, number) for number in range(2)]

    def digests() -> list[str]:
        return [json.loads(line)["digest"] for line in trace.read_text().splitlines()] if trace.exists() else []

    gate.write_text("5")
    with ThreadPoolExecutor(2) as pool:
        asked = [SignalRequests(), SignalRequests()]
        running = ranks(asked, pool)
        while len(digests()) < 5:
            time.sleep(0.005)
        asked[0]._tell(signal.SIGUSR1, None)
        while not checkpoint.exists():
            time.sleep(0.005)
        assert not any(rank.done() for rank in running)
        asked[1]._tell(signal.SIGTERM, None)
        for rank in running:
            rank.result()
        assert State.load(checkpoint).digest() == digests()[-1]
        assert len(digests()) == 5
        gate.unlink()
        for rank in ranks([SignalRequests(), SignalRequests()], pool):
            rank.result()
    assert digests() == undisturbed_digests(OPTIONS, [2] * 12)
