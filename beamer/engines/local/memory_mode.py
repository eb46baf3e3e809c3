"""Where the GPU memory of suspended jobs is."""

from enum import StrEnum


class MemoryMode(StrEnum):
    """Where the GPU memory of suspended jobs is, so that others have room.

    GPU: it stays where it is. HOST: the driver moves it to host memory, and back. NONE: suspended jobs are saved at an
    iteration boundary, and their processes end. AUTO: it stays while what is to run fits beside it; else it is moved.
    """

    GPU = "gpu"
    HOST = "host"
    NONE = "none"
    AUTO = "auto"
