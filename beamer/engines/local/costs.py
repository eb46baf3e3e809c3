"""When what changes of a job's GPUs take is worth being reported anew."""

from beamer.gpu.model import Costs

MIN_COST_CHANGE = 0.2
"""The share by which a cost has to change, as each change is journaled, and one move changes those of all jobs."""


def differ(costs: Costs, before: Costs) -> bool:
    """Return whether some of the costs have changed by more than `MIN_COST_CHANGE` of what they were."""
    pairs = zip(vars(costs).values(), vars(before).values(), strict=True)
    return any(new != old and (None in (new, old) or abs(new - old) > MIN_COST_CHANGE * old) for new, old in pairs)
