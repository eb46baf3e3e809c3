"""A cache for functions that compute many results in one call, as predictors do whose arithmetic is vectorised."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BatchCache(Generic[K, V]):
    """Call a function with the keys whose values are not remembered, all at once.

    compute: returns the value of each key, whichever others it is given with. most: values that are remembered between calls;
    those not asked for the longest are forgotten first.
    """

    def __init__(self, compute: Callable[[Sequence[K]], Sequence[V]], most: int) -> None:
        self._compute = compute
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def __call__(self, keys: Sequence[K]) -> list[V]:
        """Return the value of each key."""
        missing = list(dict.fromkeys(key for key in keys if key not in self._values))
        if missing:
            self._values.update(zip(missing, self._compute(missing), strict=True))
        for key in keys:
            self._values.move_to_end(key)
        values = [self._values[key] for key in keys]
        while len(self._values) > self._most:
            self._values.popitem(last=False)
        return values
