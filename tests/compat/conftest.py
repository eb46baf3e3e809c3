"""Programs that tests start have no NVIDIA driver."""

from tests.support.nvidia.standin import no_gpu_driver

__all__ = ("no_gpu_driver",)
