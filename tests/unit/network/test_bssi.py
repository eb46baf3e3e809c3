"""The order of items on shared links against brute force."""

from itertools import permutations
from random import Random

import numpy as np
import pytest

from beamer.network.bssi import Items, sequence, weighted_completion

ONE_LINK = Items.of([1.0, 1.0, 1.0], [[3.0], [1.0], [2.0]], [3.0, 1.0, 2.0])


def drawn(rng: Random, count: int, links: int) -> Items:
    weight = [rng.choice((1.0, 2.0, 5.0)) for _ in range(count)]
    load = [[rng.uniform(0.1, 5.0) if rng.random() < 0.7 else 0.0 for _ in range(links)] for _ in range(count)]
    return Items.of(weight, load, [(max(row) or 0.5) * rng.choice((1.0, 1.5)) for row in load])


def order(items: Items) -> list[int]:
    positions: list[int] = sequence(items)[0].tolist()
    return positions


def test_one_link_is_served_shortest_first() -> None:
    assert order(ONE_LINK) == [1, 2, 0]


def test_one_link_is_served_by_weight_per_load() -> None:
    assert order(Items.of([1.0, 5.0], [[1.0], [2.0]], [1.0, 2.0])) == [1, 0]


def test_a_long_critical_path_goes_last_though_it_moves_little() -> None:
    assert order(Items.of([1.0] * 4, [[0.1], [3.0], [1.0], [2.0]], [100.0, 3.0, 1.0, 2.0]))[-1] == 0


def test_equal_items_keep_their_order() -> None:
    assert order(Items.of([1.0] * 4, [[1.0]] * 4, [1.0] * 4)) == [0, 1, 2, 3]


def test_items_without_load_come_first() -> None:
    assert order(Items.of([1.0, 1.0], [[3.0], [0.0]], [3.0, 0.0])) == [1, 0]


def test_nothing_to_order() -> None:
    positions, dual_s = sequence(Items.of([], [], []))
    assert positions.tolist() == []
    assert dual_s == 0.0


def test_on_one_link_the_dual_value_is_the_optimum() -> None:
    assert sequence(ONE_LINK)[1] == pytest.approx(1.0 + 3.0 + 6.0)


@pytest.mark.parametrize("seed", range(40))
def test_dual_value_bounds_every_order_and_the_order_is_near_it(seed: int) -> None:
    items = drawn(Random(seed), count=5, links=3)
    positions, dual_s = sequence(items)
    best = min(weighted_completion(items, np.array(each)) for each in permutations(range(5)))
    assert 0 < dual_s <= best * (1 + 1e-9)
    assert best <= weighted_completion(items, positions) * (1 + 1e-9) <= 2 * best
