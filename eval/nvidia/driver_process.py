"""The process that makes the driver's calls for the experiment, and says what each took.

    python -m eval.nvidia.driver_process

It answers every line of JSON with one: `{"call": "lock", "pid": 17}` with `{"seconds": 0.009, "value": 0, "error": ""}`. Calls
are those of `beamer.nvidia.checkpoint.Checkpoints`; `free` is the free memory of the GPU that `gpu` names, in bytes.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from beamer.errors import BeamerError
from beamer.nvidia.checkpoint import Checkpoints, CudaCheckpoints
from beamer.nvidia.inventory import NoGpus
from beamer.nvidia.nvml import Nvml, open_nvml

LOCK_S = 10.0
"""How long a program may take to end the kernels that it has begun."""


def answer(request: Mapping[str, Any], driver: Checkpoints, nvml: Nvml) -> dict[str, Any]:
    """Make a call, and return what it took and why it was refused."""
    begun_s = time.perf_counter()
    value, error = 0, ""
    try:
        match request["call"]:
            case "lock":
                driver.lock(request["pid"], LOCK_S)
            case "checkpoint":
                driver.checkpoint(request["pid"])
            case "restore":
                driver.restore(request["pid"], {})
            case "unlock":
                driver.unlock(request["pid"])
            case "free":
                value, error = _free(nvml, request["gpu"])
            case other:
                error = f"no such call: {other}"
    except BeamerError as refusal:
        error = str(refusal)
    return {"seconds": time.perf_counter() - begun_s, "value": value, "error": error}


def _free(nvml: Nvml, uuid: str) -> tuple[int, str]:
    found = nvml.inventory()
    if isinstance(found, NoGpus):
        return 0, found.reason
    free = next((gpu.free_bytes for gpu in found.gpus if gpu.uuid == uuid), None)
    return (0, f"the driver does not say what is free on {uuid}") if free is None else (free, "")


def main() -> None:
    """Answer every line of the standard input."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Packages write to the standard output.
    try:
        driver = CudaCheckpoints()
    except BeamerError as error:
        sys.exit(str(error))
    nvml = open_nvml()
    if isinstance(nvml, NoGpus):
        sys.exit(nvml.reason)
    with nvml:
        for line in sys.stdin:
            answers.write(json.dumps(answer(json.loads(line), driver, nvml)) + "\n")


if __name__ == "__main__":
    main()
