"""What follows from the number of GPUs that a job gets."""

from beamer.gpu.model import Request


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
