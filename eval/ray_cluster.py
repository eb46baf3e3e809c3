"""A Ray cluster of several nodes on this machine, which declare GPUs that they need not have."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # No usage is reported to anybody.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_SYNCER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "inf",
}
SAME_PRIORITY = {"RAY_worker_niceness": "0"}
"""By default Ray gives trials so low a priority that whatever else runs on the machine delays them more than their driver."""
HEALTH = {"health_check_initial_delay_ms": 2000, "health_check_period_ms": 500, "health_check_failure_threshold": 8}
OBJECT_STORE_BYTES = 80 * 2**20  # Ray's minimum is just below.


class LocalRayCluster:
    """Run a head without GPUs and a node for each entry of `gpus`, each on its own loopback address, until the context ends.

    gpus: of each node. cpus: of each node, declared as well: trials share the machine's cores. path: what trials import their
    modules from, the working directory by default. The driver is connected to the head.
    """

    def __init__(self, gpus: Sequence[int] = (2, 2), cpus: int = 8, path: Path | None = None) -> None:
        self._gpus, self._cpus = tuple(gpus), cpus
        self._path = path or Path.cwd()
        self._nodes: dict[Any, int] = {}
        self._made = 0

    def __enter__(self) -> Self:
        for name, value in (QUIET | SAME_PRIORITY).items():
            os.environ.setdefault(name, value)
        import ray  # Ray reads its environment when it is imported.
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        try:
            self._cluster.add_node(include_dashboard=False, _system_config=HEALTH, **self._arguments(0))
            for gpus in self._gpus:
                self.add(gpus)
            ray.init(
                address=self._cluster.address,
                _node_ip_address="127.0.0.2",
                log_to_driver=False,
                logging_level="warning",
                runtime_env={"env_vars": {"PYTHONPATH": str(self._path)}},
            )
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def add(self, gpus: int) -> None:
        """Start another node."""
        self._nodes[self._cluster.add_node(**self._arguments(gpus))] = gpus

    def kill(self, address: str) -> int:
        """Kill the node of that address with everything that runs on it, and return how many GPUs it declared."""
        node = next(node for node in self._nodes if node.node_ip_address == address)
        self._cluster.remove_node(node, allow_graceful=False)
        return self._nodes.pop(node)

    def _arguments(self, gpus: int) -> dict[str, Any]:
        self._made += 1
        return {
            "num_gpus": gpus,
            "num_cpus": self._cpus,
            "object_store_memory": OBJECT_STORE_BYTES,
            "node_ip_address": f"127.0.0.{self._made + 1}",  # Ray takes 127.0.0.1 for another address of the machine.
        }

    def _stop(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()
