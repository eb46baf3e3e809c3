"""Sincronia's workloads: `id arrival_ms flows sources destinations` and `src dst MB` of every flow.

Sources and destinations are numbers of distinct ports. [https://github.com/sincronia-coflow/workload-generator]
"""

import numpy as np

from beamer.sim.traces.fields import MAX_FLOWS, FieldReader
from beamer.sim.traces.model import MB, Coflow
from beamer.studies.model import MAX_SECONDS, MAX_SYNC_BYTES


def parse(line: FieldReader, ports: int) -> Coflow:
    """Read one coflow, its ports as the file numbers them. Raises `InputError`."""
    name, release_s = line.text("id"), line.amount("arrival", 1, 1000 * MAX_SECONDS) / 1000
    flows = line.integer("flows", 1, MAX_FLOWS)
    sources, destinations = line.integer("sources", 1), line.integer("destinations", 1)
    src, dst, sizes = [], [], []
    for _ in range(flows):
        src.append(line.integer("source", 0, ports))
        dst.append(line.integer("destination", 0, ports))
        sizes.append(line.amount("megabytes", MB, MAX_SYNC_BYTES))
    line.end()
    for field, stated, named in (("sources", sources, src), ("destinations", destinations, dst)):
        if stated != len(set(named)):
            raise line.error(field, stated, f"{len(set(named))}, the distinct ones that the flows name")
    return Coflow(name, release_s, np.array(src), np.array(dst), np.array(sizes))
