"""coflow-benchmark: `id arrival_ms mappers m1 .. reducers r1:MB ..`; every reducer fetches the same from every mapper.

[https://github.com/coflow/coflow-benchmark]
"""

import numpy as np

from beamer.sim.traces.fields import FieldReader
from beamer.sim.traces.model import MB, Coflow


def parse(line: FieldReader, ports: int) -> Coflow:
    """Read one coflow, its ports as the file numbers them, flows by reducer. Raises `InputError`."""
    name, release_s = line.text("id"), line.amount("arrival") / 1000
    mappers = [line.integer("mapper", 0, ports) for _ in range(line.integer("mappers", 1))]
    reducers, sizes = [], []
    for _ in range(line.integer("reducers", 1)):
        text = line.text("reducer")
        port, colon, size = text.partition(":")
        if not colon:
            raise line.error("reducer", text, "port:megabytes")
        reducers.append(line.as_integer("reducer", port, 0, ports))
        sizes.append(line.as_amount("megabytes", size, MB))
    line.end()
    m, r = len(mappers), len(reducers)
    return Coflow(name, release_s, np.tile(mappers, r), np.repeat(reducers, m), np.repeat(sizes, m) / m)
