"""Plans as data."""

import pytest

from beamer.network.plan import JobPlan, Plan


@pytest.mark.parametrize(("queues", "klass"), [(8, 7), (6, 5), (1, 0)])
def test_a_plan_is_brought_into_fewer_classes_and_jobs_keep_their_caps(queues: int, klass: int) -> None:
    plan = Plan(8, {"a/b": JobPlan(7, 10**6), "a/c": JobPlan(0)})
    assert plan.within(queues) == Plan(queues, {"a/b": JobPlan(klass, 10**6), "a/c": JobPlan(0)})
    assert Plan(4).within(8) == Plan(4)
