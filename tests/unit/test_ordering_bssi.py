"""The order of items on shared links against brute force."""

from itertools import permutations
from random import Random

import pytest

from beamer.ordering.bssi import Item, sequence, weighted_completion

ONE_LINK = [Item(1.0, {0: 3.0}, 3.0), Item(1.0, {0: 1.0}, 1.0), Item(1.0, {0: 2.0}, 2.0)]


def drawn(rng: Random, count: int, links: int) -> list[Item]:
    items: list[Item] = []
    for _ in range(count):
        load = {p: rng.uniform(0.1, 5.0) for p in range(links) if rng.random() < 0.7}
        items.append(Item(rng.choice((1.0, 2.0, 5.0)), load, max(load.values(), default=0.5) * rng.choice((1.0, 1.5))))
    return items


def test_one_link_is_served_shortest_first() -> None:
    assert sequence(ONE_LINK).order == (1, 2, 0)


def test_one_link_is_served_by_weight_per_load() -> None:
    items = [Item(1.0, {0: 1.0}, 1.0), Item(5.0, {0: 2.0}, 2.0)]
    assert sequence(items).order == (1, 0)


def test_a_long_critical_path_goes_last_though_it_moves_little() -> None:
    computing = Item(1.0, {0: 0.1}, 100.0)
    assert sequence([computing, *ONE_LINK]).order[-1] == 0


def test_equal_items_keep_their_order() -> None:
    assert sequence([Item(1.0, {0: 1.0}, 1.0)] * 4).order == (0, 1, 2, 3)


def test_items_without_load_come_first() -> None:
    assert sequence([ONE_LINK[0], Item(1.0, {}, 0.0)]).order == (1, 0)


def test_nothing_to_order() -> None:
    assert sequence([]).order == ()
    assert sequence([]).dual_s == 0.0


def test_on_one_link_the_dual_value_is_the_optimum() -> None:
    assert sequence(ONE_LINK).dual_s == pytest.approx(1.0 + 3.0 + 6.0)


@pytest.mark.parametrize("seed", range(40))
def test_dual_value_bounds_every_order_and_the_order_is_near_it(seed: int) -> None:
    items = drawn(Random(seed), count=5, links=3)
    sequenced = sequence(items)
    best = min(weighted_completion(items, order) for order in permutations(range(len(items))))
    assert 0 < sequenced.dual_s <= best * (1 + 1e-9)
    assert best <= weighted_completion(items, sequenced.order) * (1 + 1e-9) <= 2 * best
