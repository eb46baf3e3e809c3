"""The array types of the network level: columns of snapshots, and what the kernels take."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint32]
"""Positions, which compiled code indexes with as they are; a signed one it would ask whether it counts from the end."""
Bools = npt.NDArray[np.bool_]
Records = npt.NDArray[np.void]
