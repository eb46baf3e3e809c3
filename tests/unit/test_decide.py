"""From an order of tiers to classes on K queues."""

import pytest

from beamer.decide import assign_classes, decide
from beamer.errors import InputError
from beamer.ordering import Tier, ordering


def tier(jobs: str, divisible: bool = True) -> Tier:
    return Tier(tuple(jobs), divisible)


@pytest.mark.parametrize(
    ("order", "queues", "expected"),
    [
        pytest.param((), 8, "", id="nothing"),
        pytest.param((tier("ab", False),), 8, "a0 b0", id="an indivisible tier is one class"),
        pytest.param((tier("a"), tier("b"), tier("c")), 8, "a0 b1 c2", id="a class per tier"),
        pytest.param((tier("a"), tier("b"), tier("c")), 2, "a0 b1 c1", id="tiers that find no class share the lowest"),
        pytest.param((tier("ab"), tier("cd")), 1, "a0 b0 c0 d0", id="one queue"),
        pytest.param((tier("abc"), tier("de")), 8, "a0 b1 c2 d3 e4", id="classes to spare for every job"),
        pytest.param((tier("abc"), tier("de")), 3, "a0 b1 c1 d2 e2", id="spare classes go to the most urgent tier's slowest"),
        pytest.param((tier("abc"), tier("def")), 5, "a0 b1 c2 d3 e4 f4", id="then to the next tier"),
        pytest.param((tier("ab", False), tier("cd")), 3, "a0 b0 c1 d2", id="an indivisible tier leaves its spare ones"),
    ],
)
def test_classes(order: tuple[Tier, ...], queues: int, expected: str) -> None:
    assert assign_classes(order, queues) == {entry[0]: int(entry[1:]) for entry in expected.split()}


@pytest.mark.parametrize("queues", [0, 9, -1, True, 2.0])
def test_a_number_of_queues_that_no_port_has(queues: int) -> None:
    with pytest.raises(InputError, match=r"queues: got .*, expected 1 to 8"):
        decide(ordering("fair"), queues)
