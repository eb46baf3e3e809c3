"""Linear programmes whose value is a bound whatever the solver's tolerance."""

from dataclasses import dataclass, field

import numpy as np
import scipy  # type: ignore[import-untyped]  # SciPy loads scipy.optimize at its first use, as that takes a while.
from scipy.sparse import coo_array, csr_array  # type: ignore[import-untyped]

from beamer.errors import BeamerError
from beamer.network.arrays import Floats, Ints


@dataclass
class Rows:
    """Constraints `coefficients @ variables >= least`, collected row by row or in blocks."""

    _row: list[Ints] = field(default_factory=list)
    _columns: list[Ints] = field(default_factory=list)
    _values: list[Floats] = field(default_factory=list)
    _least: list[Floats] = field(default_factory=list)
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    def add(self, columns: Ints, values: Floats, least: float) -> None:
        """Add one constraint."""
        self.add_all(np.zeros(len(columns), np.int64), columns, values, np.array([least]))

    def add_all(self, row: Ints, columns: Ints, values: Floats, least: Floats) -> None:
        """Add one constraint per entry of `least`; entries of equal `row`, from 0 on, and column add up."""
        self._row.append(row + self._count)
        self._columns.append(columns)
        self._values.append(values)
        self._least.append(least)
        self._count += len(least)

    def minimise(self, cost: Floats, lower: Floats, upper: Floats, method: str) -> tuple[Floats, float]:
        """Return the variables of least `cost` between `lower` and `upper`, and a bound on that cost.

        The bound is that of the solver's dual solution, its signs put right: any dual solution is a bound where all variables
        have finite limits. Limits and rows may be of any size: variables and rows are scaled, since the solver's tolerances are
        absolute.
        Raises `BeamerError` if the solver gives up.
        """
        row = np.concatenate([np.zeros(0, np.int64), *self._row])
        columns = np.concatenate([np.zeros(0, np.int64), *self._columns])
        values = np.concatenate([np.zeros(0), *self._values])
        matrix = csr_array(coo_array((values, (row, columns)), shape=(len(self), len(cost))))
        least = np.concatenate([np.zeros(0), *self._least])
        scale = np.where(upper > 0, upper, 1.0)
        scaled = matrix * scale
        size = np.asarray(abs(scaled).max(axis=1).todense() if len(self) else np.zeros(0), np.float64).ravel()
        size = np.where(size > 0, size, 1.0)
        unit = float(np.max(cost * scale, initial=0.0)) or 1.0
        result = scipy.optimize.linprog(
            cost * scale / unit,
            A_ub=csr_array(-scaled / size[:, None]),
            b_ub=-least / size,
            bounds=np.stack([lower / scale, upper / scale], axis=1),
            method=method,
        )
        if result.x is None:
            raise BeamerError(f"a programme of {len(cost)} variables was not solved: {result.message}")
        dual = np.maximum(-result.ineqlin.marginals * unit / size, 0.0)
        reduced = cost - matrix.T @ dual
        return result.x * scale, float(dual @ least + np.minimum(reduced * lower, reduced * upper).sum())
