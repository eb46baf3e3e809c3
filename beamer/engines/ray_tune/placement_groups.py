"""The placement groups of a search. One that is not wanted any more is removed only once Ray has created it.

Ray 2.60 keeps what it has prepared for a placement group that is removed before it is committed: its scheduler then gives back
committed bundles only (`GcsPlacementGroupScheduler::CommitAllBundles`; ray-project/ray#64693 is about another way to the same
end). The GPUs count as taken for as long as their node is up, and whoever is to have them waits for ever. Tune removes the
group of a trial at once when the trial's start is withdrawn, which a scheduler does most often just when GPUs become free.

Where a driver is killed Ray removes its groups by itself, whatever their state.
"""

import time
from collections import Counter
from typing import Any

import ray
from ray.air.execution import PlacementGroupResourceManager
from ray.util.placement_group import PlacementGroup, placement_group_table

SETTLE_S = 5.0
"""For how long groups are waited for at the end. Ray tries each about once a second, and may have to try it twice."""


class SettledPlacementGroups(PlacementGroupResourceManager):  # type: ignore[misc]
    """Remove a placement group that is not wanted any more once Ray has created it. Until then an equal request gets it."""

    def __init__(self, update_interval_s: float = 0.1) -> None:
        super().__init__(update_interval_s)
        self._unwanted: Counter[Any] = Counter()  # the number of groups to remove, by request

    def __del__(self) -> None:
        super().clear()  # There is no wait, as the garbage collector may run anywhere.

    def request_resources(self, resource_request: Any) -> None:
        """Have a group created, or keep one that was to be removed."""
        if self._unwanted[resource_request]:
            self._unwanted -= Counter([resource_request])
        else:
            super().request_resources(resource_request)

    def cancel_resource_request(self, resource_request: Any) -> None:
        """Have a group of this request removed: now, if one is created. Raises `RuntimeError` where all of them are to be."""
        if self._unwanted[resource_request] == self._count(resource_request):
            raise RuntimeError(f"cancelled more often than requested: {resource_request}")
        self._unwanted[resource_request] += 1
        self._remove_created()

    def update_state(self) -> None:
        """Take in which groups have been created, and remove those that nobody wants."""
        super().update_state()
        self._remove_created()

    def clear(self) -> None:
        """Remove every group, once it is created where Ray is about to create it."""
        if ray.is_initialized():
            for group in list(self._acquired_pgs):
                self._acquired_pgs.remove(group)
                ray.util.remove_placement_group(group)
            self._unwanted = Counter({request: self._count(request) for request in list(self._request_to_staged_pgs)})
            self._remove_created()
            until_s = time.monotonic() + SETTLE_S
            while (waiting := self._feasible()) and (left_s := until_s - time.monotonic()) > 0:
                ray.wait(waiting, num_returns=1, timeout=left_s)
                self.update_state()
        super().clear()

    def _count(self, request: Any) -> int:
        return len(self._request_to_staged_pgs[request]) + len(self._request_to_ready_pgs[request])

    def _feasible(self) -> list[Any]:
        """Return the futures of groups that are not created yet and can be, with the nodes that there are."""
        return [future for future, group in self._staging_future_to_pg.items() if not _is_infeasible(group)]

    def _remove_created(self) -> None:
        for request in list(self._unwanted):
            created = self._request_to_ready_pgs[request]
            wanted = self._count(request) - self._unwanted[request]
            while len(created) > wanted:
                group = created.pop()
                self._unwanted -= Counter([request])
                self._pg_to_request.pop(group)
                ray.util.remove_placement_group(group)


def _is_infeasible(group: PlacementGroup) -> bool:
    """Say whether no node could have what a group asks for, as where its node is gone: Ray does not prepare it."""
    return bool(placement_group_table(group)["stats"]["scheduling_state"] == "INFEASIBLE")
