"""What suspending, moving and starting trials takes on an NVIDIA GPU: `python -m eval nvidia`."""
