"""Measures of samples that several parts report: Jain's fairness index and nearest-rank quantiles."""

import math
from collections.abc import Sequence


def jain(values: Sequence[float]) -> float:
    """Return Jain's fairness index of `values`: 1 when all are equal, 1/n when one has everything. [Jain 1984]"""
    total = sum(values)
    return total * total / (len(values) * sum(v * v for v in values)) if total > 0 else 1.0


def quantile(samples: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank quantile of `samples`, `share` in (0, 1]; None of no samples."""
    return sorted(samples)[math.ceil(share * len(samples)) - 1] if samples else None
