"""A Ray cluster that makes a study's runs, in place of processes of this machine."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from beamer.errors import PlatformError
from eval.ray_cluster import QUIET

ROOT = Path(__file__).resolve().parent.parent
EXCLUDED = (".git", ".venv", "results")  # of what nodes are given
LOCAL = "local"  # for Ray, a cluster of this machine alone, which ends with the command
RETRIES = 2  # of a run, if the node goes that it is made on


class RayPool:
    """Makes calls on the cluster that this process is connected to, each on a processor of its own."""

    def __init__(self) -> None:
        self._calls: list[Any] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        """Have a call made somewhere, and return its future."""
        call = _remote(function).remote(*arguments)
        self._calls.append(call)
        future: Future[Any] = call.future()
        return future

    def cancel(self) -> None:
        """Give up what has not ended."""
        import ray

        for call in self._calls:
            ray.cancel(call, force=True)


@contextmanager
def ray_workers(address: str) -> Iterator[RayPool]:
    """Yield a pool of the cluster at an address, as of `ray.init`; other machines are given this project's files.

    They need the packages that it depends on. If an exception leaves the context, what has not ended is given up. Raises
    `PlatformError` where no cluster answers.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray  # its environment is read when it is imported

    given: dict[str, Any] = {"working_dir": str(ROOT), "excludes": [*EXCLUDED]}
    if address == LOCAL:  # where these files and what is compiled of them are
        given = {"env_vars": {"PYTHONPATH": str(ROOT)}}
    try:
        ray.init(address, runtime_env=given, log_to_driver=False, logging_level="warning")
    except ConnectionError as error:
        raise PlatformError(f"no Ray cluster answers at {address} ({error})", "name the address of one, or local") from error
    pool = RayPool()
    try:
        yield pool
    except BaseException:
        pool.cancel()
        raise
    finally:
        _remote.cache_clear()
        ray.shutdown()


@cache
def _remote(function: Callable[..., Any]) -> Any:
    """Return a function as the cluster knows it."""
    import ray

    return ray.remote(num_cpus=1, max_retries=RETRIES)(function)
