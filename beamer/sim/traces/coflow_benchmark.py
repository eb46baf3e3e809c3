"""coflow-benchmark: `id arrival_ms mappers m1 .. reducers r1:MB ..`; every reducer fetches the same from every mapper.

[https://github.com/coflow/coflow-benchmark]
"""

import numpy as np

from beamer.sim.traces.fields import MAX_FLOWS, FieldReader
from beamer.sim.traces.model import MB, Coflow
from beamer.studies.model import MAX_SECONDS, MAX_SYNC_BYTES


def parse(line: FieldReader, ports: int) -> Coflow:
    """Read one coflow, its ports as the file numbers them, flows by reducer. Raises `InputError`."""
    name, release_s = line.text("id"), line.amount("arrival", 1, 1000 * MAX_SECONDS) / 1000
    mappers = [line.integer("mapper", 0, ports) for _ in range(line.integer("mappers", 1))]
    reducers, sizes = [], []
    for _ in range(line.integer("reducers", 1)):
        text = line.text("reducer")
        port, colon, size = text.partition(":")
        if not colon:
            raise line.error("reducer", text, "port:megabytes")
        reducers.append(line.as_integer("reducer", port, 0, ports))
        sizes.append(line.as_amount("megabytes", size, MB, MAX_SYNC_BYTES))
    line.end()
    m, r = len(mappers), len(reducers)
    if m * r > MAX_FLOWS:
        raise line.error("mappers", m, f"fewer: from each to each of {r} reducers, at most {MAX_FLOWS} flows")
    return Coflow(name, release_s, np.tile(mappers, r), np.repeat(reducers, m), np.repeat(sizes, m) / m)
