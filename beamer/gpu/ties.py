"""Ties that rounding would decide: numbers that differ by their last bits alone are made equal before they are compared.

The last bits of a matrix product depend on the processor: OpenBLAS chooses its kernels by what that offers, and each of them
sums in an order of its own. Two jobs or assignments that are worth the same must not be told apart by that, or a run would
differ between machines. After `comparable` they are equal, and the rule of whoever compares them decides: the first one comes
first. Numbers on two sides of a step of the grid can still differ, which is as unlikely as such bits are small.
"""

import numpy as np
from numpy.typing import ArrayLike

from beamer.gpu.arrays import Floats

KEPT_BITS = 30
"""Of a number's 53: steps of 1e-9 of it. Kernels differ by some 1e-13 once systems of equations are solved, measured figures by
1e-3 and more."""
NO_ERROR = 1e-18
"""A sum of squares in units of the largest value that is nothing but rounding: errors of 1e-9 of it."""


def comparable(values: ArrayLike) -> Floats:
    """Return numbers with `KEPT_BITS` bits each; what is not finite stays."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, KEPT_BITS)), exponent - KEPT_BITS))


def comparable_errors(squares: Floats) -> Floats:
    """Return sums of squared errors as `comparable` does, those below `NO_ERROR` as 0."""
    return np.where(squares < NO_ERROR, 0.0, comparable(squares))
