"""GPU policies as configs name them: parameters are values of YAML, of which a wrong one is named before any run."""

from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from beamer.errors import InputError
from beamer.gpu.policies import GPU_POLICIES, gpu_policy
from beamer.gpu.policy import GpuPolicy
from beamer.validation import input_error


def configured_policy(name: str, parameters: Mapping[str, Any]) -> GpuPolicy[Any]:
    """Return the policy of that name with these parameters. Raises `InputError` for one of another type than its field's."""
    if name not in GPU_POLICIES:
        return gpu_policy(name)
    for parameter, value in parameters.items():
        try:
            kind = get_type_hints(GPU_POLICIES[name]).get(parameter, Any)
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
        except (NameError, PydanticUserError):  # of another package's policy
            continue
        if isinstance(value, bool | str) and kind in (int, float):
            raise InputError(f"{name}.{parameter}", value, "a number")
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            raise InputError(f"{name}.{parameter}", value, input_error(error).expected) from error
    return gpu_policy(name, **parameters)
