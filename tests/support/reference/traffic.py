"""A job's synchronisation as flows on the links of a fabric, acknowledgements included."""

from beamer.network.collectives import Transfer, phases
from beamer.network.fabric import Fabric
from beamer.network.job import JobSpec
from beamer.units import ETHERNET_HEADER, TCP_HEADERS, frame_bytes, segment
from tests.support.reference.network import Flow


def flows(spec: JobSpec, fabric: Fabric, plane: int, acknowledgements: bool) -> tuple[tuple[Flow, ...], ...]:
    """Return the flows of every phase of one synchronisation, sizes as on the wire; phases run one after another."""
    _, frame = segment(fabric.mtu)
    acknowledging = (ETHERNET_HEADER + TCP_HEADERS) / (2 * frame)  # a receiver acknowledges every second segment
    host_of = {worker.rank: worker.host for worker in spec.workers}

    def flow(transfer: Transfer) -> Flow:
        src, dst = host_of[transfer.src_rank], host_of[transfer.dst_rank]
        data = 8 * frame_bytes(transfer.size_bytes, fabric.mtu)
        return Flow(dict.fromkeys(fabric.path(src, dst, plane), 1.0), data * (1 + acknowledging) if acknowledgements else data)

    return tuple(tuple(flow(transfer) for transfer in phase) for phase in phases(spec))
