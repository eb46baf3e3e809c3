"""What a job of the local engine costs to change, as it is reported."""

import pytest

from beamer.engines.local.costs import differ
from beamer.gpu.model import Costs

KNOWN = Costs(2.0, 1.0, 10.0)


@pytest.mark.parametrize(
    ("costs", "is_new"),
    [
        (KNOWN, False),
        (Costs(2.3, 0.9, 11.0), False),
        (Costs(2.5, 1.0, 10.0), True),
        (Costs(2.0, 0.7, 10.0), True),
        (Costs(2.0, 1.0, 0.0), True),
        (Costs(2.0, 1.0, 10.0, 0.0), True),
    ],
)
def test_costs_are_reported_anew_when_one_has_changed_by_a_fifth(costs: Costs, is_new: bool) -> None:
    assert differ(costs, KNOWN) is is_new
    assert differ(costs, Costs()), "what was not measured before is new"
