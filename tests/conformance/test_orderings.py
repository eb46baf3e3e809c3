"""Every registered network policy passes the suite that users run on their own."""

import pytest

from beamer.ordering import ORDERINGS, ordering
from beamer.testing.ordering import ORDERING_CHECKS, OrderingCheck
from beamer.testing.simulation import SIMULATION_CHECKS, SimulationCheck


@pytest.mark.parametrize("name", ORDERINGS)
@pytest.mark.parametrize("check", ORDERING_CHECKS, ids=lambda check: check.__name__)
def test_order(check: OrderingCheck, name: str) -> None:
    check(ordering(name))


@pytest.mark.parametrize("name", ORDERINGS)
@pytest.mark.parametrize("check", SIMULATION_CHECKS, ids=lambda check: check.__name__)
def test_simulated_runs(check: SimulationCheck, name: str) -> None:
    check(name)
