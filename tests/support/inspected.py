"""A served controller with a search, for the commands that show what a controller knows."""

import time
from typing import Any

from tests.support import plain_http
from tests.support.served_controller import PATIENCE_S, Served

STUDY = "/v1/studies/mnist"


def put(controller: Served, path: str, body: object = None, bearer: str | None = None) -> Any:
    """Carry out a PUT, and return its answer."""
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    answer = plain_http.put(controller.url + path, json=body, headers=headers, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def get(controller: Served, path: str) -> Any:
    """Return what a path answers."""
    answer = plain_http.get(controller.url + path, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def place(*hosts: str, sync_bytes: int | None = 600_000) -> dict[str, Any]:
    """Return the body of an attempt on these hosts."""
    workers = [{"rank": rank, "host": host} for rank, host in enumerate(hosts)]
    return {"workers": workers, "sync_bytes": sync_bytes, "compute_s": 0.5}


def register(controller: Served) -> None:
    """Register a search of three trials in one stage: `a` and `b` run on the same hosts, `c` waits; and one that has ended.

    Both have 20 steps to go, of which `a` has done 5; a step of `b` sends ten times as much.
    """
    put(controller, STUDY, {"run": "one", "weight": 2.0, "rungs": [{"name": "rung0", "trials": 3, "step": 20}]})
    put(controller, f"{STUDY}/stages/rung0", {})
    for name in "abc":
        put(controller, f"{STUDY}/trials/{name}", {})
        put(controller, f"{STUDY}/trials/{name}/target", {"step": 20, "stage": "rung0"})
    put(controller, f"{STUDY}/stages/rung0/seal")
    put(controller, f"{STUDY}/trials/a/attempts/first", place("h1", "h2"))
    put(controller, f"{STUDY}/trials/b/attempts/first", place("h1", "h2", sync_bytes=6_000_000))
    put(controller, f"{STUDY}/trials/a/progress", {"step": 5, "loss": 0.25})
    put(controller, "/v1/studies/over", {"run": "past"})
    put(controller, "/v1/studies/over/end")
    assert controller.until(lambda runtime: len(runtime.plan.jobs) == 2)
    deadline = time.monotonic() + PATIENCE_S
    while get(controller, f"{STUDY}/trials/a")["decision"]["remaining_steps"] != 15:  # A decision may precede the report.
        assert time.monotonic() < deadline, "no decision follows the report"
        time.sleep(0.02)
