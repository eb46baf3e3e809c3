"""Estimates: what every predictor returns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A predicted value with its standard deviation, infinite where nothing that was measured supports the value."""

    value: float
    deviation: float

    @property
    def known(self) -> bool:
        """Whether anything that was measured supports the value."""
        return self.deviation < float("inf")
