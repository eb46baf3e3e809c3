"""Pairs of a GPU policy and a network policy, as the configs and tables of studies name them: `fifo + fair`."""

from beamer.errors import InputError
from beamer.gpu.policies import gpu_policy
from beamer.network.policies import network_policy

SEPARATOR = " + "


def pair(gpu: str, network: str) -> str:
    """Return the name of a pair of policies."""
    return f"{gpu}{SEPARATOR}{network}"


def policies_of(who: str, field: str = "pairs") -> tuple[str, str]:
    """Return the GPU policy and the network policy that a pair is named for. field: that names it, for the error.

    Raises `InputError` for what is no pair, and for a policy that is not there.
    """
    gpu, separator, network = who.partition(SEPARATOR)
    if not separator:
        raise InputError(field, who, f"GPU POLICY{SEPARATOR}NETWORK POLICY")
    gpu_policy(gpu)
    network_policy(network)
    return gpu, network
