"""The array types of the network level: columns of snapshots, and what the kernels take."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Positions = npt.NDArray[np.uint32]
"""Unsigned, so that compiled code does not check whether they are negative and count from the end."""
Bools = npt.NDArray[np.bool_]
Records = npt.NDArray[np.void]
