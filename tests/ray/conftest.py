"""A Ray cluster of two nodes with two declared GPUs each, for the tests that need one; they skip without Ray."""

import gc
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.checkout import ROOT

if TYPE_CHECKING:
    from eval.ray_cluster import LocalRayCluster


@pytest.fixture(scope="package")
def cluster() -> Iterator["LocalRayCluster"]:
    from eval.ray_cluster import LocalRayCluster

    with LocalRayCluster((2, 2), path=ROOT) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect Tune's trials with the test that made them: their unclosed result files would fail a later test."""
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed file", ResourceWarning)
        gc.collect()
