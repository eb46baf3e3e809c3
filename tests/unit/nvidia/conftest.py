"""The stand-in of NVIDIA's management library in this process."""

from tests.support.nvidia.standin import described, libraries

__all__ = ("described", "libraries")
