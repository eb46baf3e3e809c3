"""The placement groups of a search, none of which is removed while Ray may be reserving its resources.

Ray loses what it has just reserved for a placement group that is removed before it is created (2.60; ray-project/ray#64693):
the GPUs count as taken for as long as their node is up, and whoever is to have them waits for ever. Tune removes the group of a
trial at once when the trial's start is withdrawn, which a scheduler does most often just when GPUs become free.
"""

from collections import Counter
from typing import Any

import ray
from ray.air.execution import PlacementGroupResourceManager

SETTLE_S = 2.0  # in which Ray creates what it has resources for: it tries each group once a second or more often


class SettledPlacementGroups(PlacementGroupResourceManager):  # type: ignore[misc]
    """Remove a placement group that is not wanted any more once it is created; until then the next equal request has it."""

    def __init__(self, update_interval_s: float = 0.1) -> None:
        super().__init__(update_interval_s)
        self._unwanted: Counter[Any] = Counter()  # groups not yet removed, by their requests

    def request_resources(self, resource_request: Any) -> None:
        """Have a group created, or keep one that was to be removed."""
        if self._unwanted[resource_request]:
            self._unwanted[resource_request] -= 1
        else:
            super().request_resources(resource_request)

    def cancel_resource_request(self, resource_request: Any) -> None:
        """Have a group of this request removed, now if one is created."""
        self._unwanted[resource_request] += 1
        self._remove_created()

    def update_state(self) -> None:
        """Take in which groups have been created, and remove those that nobody wants."""
        super().update_state()
        self._remove_created()

    def clear(self) -> None:
        """Remove every group; those that may just be being created are waited for."""
        if ray.is_initialized():
            for group in list(self._acquired_pgs):
                self._acquired_pgs.remove(group)
                ray.util.remove_placement_group(group)
            if waiting := self.get_resource_futures():
                ray.wait(waiting, num_returns=len(waiting), timeout=SETTLE_S)
        super().clear()

    def _remove_created(self) -> None:
        for request in +self._unwanted:
            created = self._request_to_ready_pgs[request]
            wanted = len(created) + len(self._request_to_staged_pgs[request]) - self._unwanted[request]
            while len(created) > wanted:
                group = created.pop()
                self._unwanted[request] -= 1
                self._pg_to_request.pop(group)
                ray.util.remove_placement_group(group)
