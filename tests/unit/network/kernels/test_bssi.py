"""The compiled orders of items against the plain ones."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamer.network.bssi import Items, sequence, weighted_completion
from beamer.network.kernels import bssi as kernels
from beamer.testing.profile import PROFILE
from tests.support.reference import bssi as plain

LINKS = 4

# Seconds of which many are equal, so that ties occur, and some of very different size.
_seconds = st.sampled_from((0.5, 1.0, 1.0, 2.0, 1e-6, 1e6))
_items = st.lists(
    st.builds(
        plain.Item,
        st.sampled_from((0.5, 1.0, 1.0, 3.0)),
        st.dictionaries(st.integers(0, LINKS - 1), _seconds, max_size=LINKS),
        st.sampled_from((0.0, 0.0, 1.0, 2.0, 5.0)),
    ),
    max_size=8,
)


def columns(items: list[plain.Item], links: int = LINKS) -> Items:
    entries = [(p, seconds) for item in items for p, seconds in sorted(item.load.items())]
    return Items(
        weight=np.array([item.weight for item in items], np.float64),
        first=np.concatenate(([0], np.cumsum([len(item.load) for item in items]))).astype(np.int64),
        link=np.array([p for p, _ in entries], np.int64),
        seconds=np.array([seconds for _, seconds in entries], np.float64),
        critical_s=np.array([item.critical_s for item in items], np.float64),
        links=links,
    )


@PROFILE
@given(_items)
def test_orders_and_duals_are_those_of_the_plain_algorithm(items: list[plain.Item]) -> None:
    order, dual = sequence(columns(items))
    expected, bound = plain.sequence(items, LINKS)
    assert tuple(order.tolist()) == expected
    assert dual == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_many_items_without_ties(seed: int) -> None:
    rng = Random(seed)
    items = [
        plain.Item(
            rng.uniform(0.5, 3),
            {p: rng.uniform(0.01, 5) for p in range(30) if rng.random() < 0.2},
            rng.choice((0.0, rng.uniform(0, 20))),
        )
        for _ in range(60)
    ]
    order, dual = sequence(columns(items, 30))
    expected, bound = plain.sequence(items, 30)
    assert tuple(order.tolist()) == expected
    assert dual == pytest.approx(bound, rel=1e-12)


@PROFILE
@given(_items, st.randoms(use_true_random=False))
def test_weighted_completion(items: list[plain.Item], rng: Random) -> None:
    order = list(range(len(items)))
    rng.shuffle(order)
    value = weighted_completion(columns(items), np.array(order, np.int64))
    assert value == pytest.approx(plain.weighted_completion(items, order), rel=1e-12)


@PROFILE
@given(_items, st.data())
def test_pooled_rows(items: list[plain.Item], data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 5))
    group = sorted(data.draw(st.integers(0, groups - 1)) for _ in items)
    made = columns(items)
    first, link, seconds = kernels.pool(np.array(group, np.int64), groups, made.first, made.link, made.seconds, LINKS)
    pooled = [dict(zip(link[a:b].tolist(), seconds[a:b].tolist(), strict=True)) for a, b in pairwise(first)]
    expected = plain.pool(group, groups, [item.load for item in items])
    assert [sorted(of) for of in pooled] == [sorted(of) for of in expected]
    assert all(of == pytest.approx(plain_of) for of, plain_of in zip(pooled, expected, strict=True))
