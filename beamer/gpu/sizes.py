"""From how many GPUs a job gets to which ones, and at what batch size: for policies that resize jobs."""

from collections.abc import Mapping, Sequence

from beamer.gpu.model import Cluster, Grant, Job, Request
from beamer.gpu.placement import Room, kept


def scaled_batch(request: Request, gpus: int) -> int:
    """Return the batch size on so many GPUs: in proportion to them, up to what the largest learning rate stands for.

    The requested batch size counts as that of one GPU; the result is `Grant.batch_size`, 0 where it is the requested one.
    """
    largest = float(request.max_batch_size or request.batch_size)
    if request.learning_rate > 0 and request.max_learning_rate > 0:
        largest = min(largest, request.batch_size * max(request.max_learning_rate / request.learning_rate, 1.0))
    if request.max_local_batch_size:
        largest = min(largest, float(request.max_local_batch_size * gpus))
    batch = max(int(min(float(request.batch_size * gpus), largest) + 1e-6), 1)
    return 0 if batch == request.batch_size else batch


def sized_grants(
    cluster: Cluster, jobs: Sequence[Job], sizes: Mapping[str, int], batches: Mapping[str, int] | None = None
) -> dict[str, Grant]:
    """Grant jobs so many GPUs each, of at most as many as there are: what keeps its size stays, then large jobs choose first.

    batches: by job, as `Grant.batch_size`.
    """
    room = Room(cluster)
    places = {
        key: grant.gpus
        for key, grant in kept((job for job in jobs if job.grant and job.grant.size == sizes.get(job.key)), room).items()
    }
    for job in sorted((job for job in jobs if sizes.get(job.key) and job.key not in places), key=lambda job: -sizes[job.key]):
        held = job.grant or job.last
        place = room.place(sizes[job.key], dict(held.gpus) if held else None)
        assert place is not None
        room.take(place)
        places[job.key] = place
    batches = batches or {}
    return {job.key: Grant(places[job.key], batch_size=batches.get(job.key, 0)) for job in jobs if job.key in places}
