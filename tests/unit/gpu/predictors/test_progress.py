import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from beamer.errors import InputError
from beamer.gpu.model import Costs, Grant
from beamer.gpu.predictors import progress
from beamer.gpu.predictors.progress import BetaModel, ProgressSample
from eval.gpu import ones_data
from eval.gpu.ones_data import JobHistory
from tests.support.inputs import ONES_DATA, given


def ended(total: float, size: float = 100.0) -> list[ProgressSample]:
    return [ProgressSample(size, 2.0, 2.0 * (1 - k / total), k / total, float(k), total) for k in range(1, int(total))]


def nll(model: BetaModel | float, samples: Sequence[ProgressSample]) -> float:
    """Return the mean negative log-likelihood of the samples' shares. model: or one beta for all of them."""
    alpha, share = progress._known(samples)
    beta = np.full(len(share), model) if isinstance(model, float) else model.beta(progress.features_of(samples))
    return float(-progress._log_density(alpha, beta, share).mean())


def train(*totals: float) -> BetaModel:
    return progress.fit([s for total in totals for s in ended(total)], np.random.default_rng(0))


@dataclass(frozen=True)
class Likelihood:
    """Mean negative log-likelihoods of held-out samples: of the trained model and of the best single beta."""

    model: float
    constant: float


def held_out(histories: Sequence[JobHistory]) -> Likelihood:
    """Train on all but a fold of the jobs and judge on that fold's, each of five in turn."""
    rng, folds = np.random.default_rng(0), 5
    fold = rng.permutation(len(histories)) % folds
    sums = np.zeros(2)
    count = 0
    for number in range(folds):
        train = [s for history, f in zip(histories, fold, strict=True) if f != number for s in history.samples_of()]
        test = [s for history, f in zip(histories, fold, strict=True) if f == number for s in history.samples_of()]
        if not test:
            continue
        scores = (nll(progress.fit(train, rng), test), nll(progress.constant(train), test))
        sums += np.array(scores) * len(test)
        count += len(test)
    return Likelihood(float(sums[0]) / count, float(sums[1]) / count)


def test_training_beats_the_best_constant_where_figures_tell() -> None:
    model = train(5, 10, 20, 40)
    known = [s for total in (5, 10, 20, 40) for s in ended(total)]
    unseen = ended(30)
    assert nll(model, known) < nll(progress.constant(known), known)
    assert nll(model, unseen) < nll(progress.constant(known), unseen)


def test_the_more_accurate_a_job_is_the_less_it_has_left() -> None:
    figures = progress.features_of(ProgressSample(100.0, 2.0, loss, 1 - loss / 2, 10.0) for loss in (1.8, 0.2))
    early, late = train(20, 30, 40).beta(figures)
    assert early > late


def test_slopes_are_those_of_the_likelihood() -> None:
    samples = ended(12)
    model = progress.fit(samples, np.random.default_rng(1), steps=3)
    inputs = (progress.features_of(samples) - np.array(model.centre)) / np.array(model.scale)
    alpha = np.array([s.epochs for s in samples])
    rho = np.clip(np.array([s.epochs / s.total for s in samples]), progress.SHARE_MARGIN, 1 - progress.SHARE_MARGIN)
    layers = [np.array(model.hidden).reshape(-1, 5), np.array(model.bias), np.array(model.out), np.array([model.out_bias])]
    slopes = progress._gradient(inputs, alpha, rho, *layers)

    def loss(moved: list[np.ndarray]) -> float:
        hidden, bias, out, out_bias = (tuple(layer.ravel().tolist()) for layer in moved)
        return nll(BetaModel(model.centre, model.scale, hidden, bias, out, out_bias[0], 0), samples)

    for number in range(4):
        step = np.random.default_rng(2).standard_normal(layers[number].shape) * 1e-6
        up, down = ([*layers[:number], layers[number] + sign * step, *layers[number + 1 :]] for sign in (1, -1))
        assert (loss(up) - loss(down)) / 2 == pytest.approx(float((slopes[number] * step).sum()), rel=1e-3, abs=1e-12)


def test_without_a_model_the_epochs_asked_for_are_the_prior() -> None:
    epochs = np.array([9.0])
    alpha, beta = progress.alpha_from_epochs(epochs), progress.prior_beta(epochs)
    assert alpha / (alpha + beta) == pytest.approx(9 / 19)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 0.0])
def test_garbage_gives_a_beta(bad: float) -> None:
    (beta,) = train(10).beta(progress.features_of([ProgressSample(bad, bad, bad, bad, bad)]))
    assert 1 <= beta < np.inf


def test_garbage_trains_a_finite_model() -> None:
    nan = float("nan")
    samples = [ProgressSample(nan, nan, nan, nan, 3.0, 5.0), ProgressSample(1.0, 0.0, float("inf"), nan, nan, 5.0), *ended(6)]
    model = progress.fit(samples, np.random.default_rng(0))
    assert np.isfinite([*model.hidden, *model.out, model.out_bias]).all()


def test_two_trainings_are_equal_and_survive_json() -> None:
    model = train(10, 20)
    assert model == train(10, 20)
    adapter = TypeAdapter(BetaModel)
    assert adapter.validate_json(adapter.dump_json(model)) == model
    json.loads(adapter.dump_json(model))


def test_training_goes_on_from_a_model() -> None:
    model = train(10, 20)
    again = progress.fit(ended(15), np.random.default_rng(0), start=model, steps=20)
    assert again.centre == model.centre
    assert nll(again, ended(15)) < nll(model, ended(15))


def test_synthetic_histories_train_and_repeat() -> None:
    data = ones_data.synthetic(3)
    assert data == ones_data.synthetic(3)
    assert data != ones_data.synthetic(4)
    judged = held_out(data.histories)
    assert judged.model < judged.constant


def test_a_history_is_interpolated() -> None:
    history = ones_data.synthetic(3).histories[0]
    assert history.loss(0.0) == history.initial_loss
    assert history.loss(1.0) == history.epochs[-1].loss
    assert history.accuracy(0.5) > history.accuracy(0.1)
    per_gpu = history.epochs[0].batch_size
    size, rate = max(history.throughput.items())
    assert history.rate(per_gpu, size // per_gpu, 0.5) == pytest.approx(rate)
    assert history.rate(per_gpu, 4 * size // per_gpu, 0.5) == pytest.approx(2 * rate)


@pytest.mark.parametrize("elastic", [False, True])
def test_a_row_of_the_trace_becomes_a_job(elastic: bool) -> None:
    data = ones_data.synthetic(3)
    assert data.exponent == pytest.approx(0.85, abs=0.02)
    for number, row in enumerate(data.trace):
        job = data.simulated(number, Costs(), elastic)
        request, history = job.request, data.history(number)
        assert request.iterations * request.batch_size / row.epoch_samples == pytest.approx(len(history.epochs), rel=0.05)
        assert job.profile.outcome(float(request.iterations)).loss == history.epochs[-1].loss
        steps = [job.profile.step_s(Grant((("n0", gpus),)), row.batch_size * gpus)[0] for gpus in (1, 2, 4)]
        assert steps == sorted(steps)


def test_missing_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace_1\.csv"):
        ones_data.read(tmp_path)


def test_published_data_is_read() -> None:
    data = ones_data.read(given(ONES_DATA))
    assert all(job.at_s <= after.at_s for job, after in zip(data.trace, data.trace[1:], strict=False))
    assert all(history.samples >= history.epochs[-1].samples for history in data.histories)
    assert all(job.max_batch_size >= job.batch_size for job in data.trace)
    assert set(data.measured) == {"ones", "drl", "optimus", "tiresias"}
    assert all(data.simulated(number, Costs(), elastic=True).request.iterations > 0 for number in range(len(data.trace)))
    judged = held_out(data.histories)
    assert judged.model < judged.constant
