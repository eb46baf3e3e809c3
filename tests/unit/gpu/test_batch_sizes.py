"""Batch sizes on other numbers of GPUs."""

import numpy as np
import pytest

from beamer.gpu.batch_sizes import BatchSizes
from beamer.gpu.model import Request

ROW = np.array([0])


@pytest.mark.parametrize(
    ("request_", "gpus", "batch"),
    [
        (Request(9, batch_size=16), 4, 16),
        (Request(9, batch_size=16, max_batch_size=256), 1, 16),
        (Request(9, batch_size=16, max_batch_size=256), 4, 64),
        (Request(9, batch_size=16, max_batch_size=256), 100, 256),
        (Request(9, batch_size=16, max_batch_size=256, learning_rate=0.1, max_learning_rate=0.3), 8, 48),
        (Request(9, batch_size=16, max_batch_size=256, max_local_batch_size=8), 4, 32),
        (Request(9, batch_size=16, max_local_batch_size=8), 1, 8),
        (Request(9, batch_size=16, max_local_batch_size=8, accumulates=True), 1, 16),
        (Request(9, batch_size=16, max_batch_size=256, max_local_batch_size=8, accumulates=True), 4, 64),
    ],
)
def test_batches_grow_with_the_gpus_until_the_rate_is_largest(request_: Request, gpus: int, batch: int) -> None:
    assert BatchSizes.of([request_]).scaled(ROW, np.array([gpus])).tolist() == [batch]


def test_batches_lie_between_the_requested_one_and_the_largest() -> None:
    requests = [
        Request(10, batch_size=64),
        Request(10, batch_size=64, max_batch_size=512),
        Request(10, batch_size=64, max_local_batch_size=32),
        Request(10, batch_size=64, max_batch_size=512, max_local_batch_size=32),
    ]
    low, high = BatchSizes.of(requests).between(np.arange(4), np.full(4, 4))
    assert low.tolist() == [64, 64, 64, 64]
    assert high.tolist() == [64, 512, 64, 128]


def test_a_gpu_that_holds_less_than_the_requested_batch_limits_both() -> None:
    batches = BatchSizes.of([Request(10, batch_size=64, max_local_batch_size=32)])
    assert [limit.tolist() for limit in batches.between(ROW, np.array([1]))] == [[32], [32]]


def test_a_job_that_accumulates_takes_any_batch_in_as_many_sub_steps_as_fit() -> None:
    accumulating = Request(10, batch_size=64, max_batch_size=512, max_local_batch_size=24, accumulates=True)
    requests = [accumulating, Request(10, batch_size=64, max_batch_size=512, max_local_batch_size=24), Request(10)]
    batches = BatchSizes.of(requests)
    rows, gpus = np.arange(3), np.full(3, 2)
    assert [limit.tolist() for limit in batches.between(rows, gpus)] == [[64, 48, 1], [512, 48, 1]]
    assert batches.sub_steps(rows, gpus, np.full(3, 97.0)).tolist() == [3, 1, 1]
    assert batches.sub_steps(np.zeros(3, np.int64), gpus, np.array([48.0, 49.0, 20.0])).tolist() == [1, 2, 1]
    assert [accumulating.sub_steps(2, batch) for batch in (0, 48, 49, 97)] == [2, 1, 2, 3]
    assert [request.sub_steps(2, 512) for request in requests[1:]] == [1, 1]
