"""GPU policies as command lines name them: a name, and parameters as NAME=VALUE."""

from collections.abc import Sequence
from typing import Any

from beamer.errors import InputError
from beamer.gpu.policies import GPU_POLICIES, gpu_policy
from beamer.gpu.policy import GpuPolicy
from beamer.validation import parsed_settings


def gpu_policy_of(name: str, settings: Sequence[str], option: str = "--set") -> GpuPolicy[Any]:
    """Return the policy of that name with settings NAME=VALUE parsed as its fields' types.

    option: that the settings are of. Raises `InputError`.
    """
    parameters = parsed_settings(name, GPU_POLICIES.choose("policy", name), settings, option)
    try:
        return gpu_policy(name, **parameters)
    except InputError as error:
        field = error.field if error.field.startswith(f"{name}.") else f"{name}.{error.field}"
        raise InputError(field, error.value, error.expected) from error
