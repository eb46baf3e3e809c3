"""GPU policies as command lines name them: a name, and parameters as NAME=VALUE."""

from collections.abc import Sequence
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from beamer.decision.registry import parameters_of
from beamer.errors import InputError, nearest
from beamer.gpu.policies import GPU_POLICIES, gpu_policy
from beamer.gpu.policy import GpuPolicy
from beamer.validation import input_error


def gpu_policy_of(name: str, settings: Sequence[str], option: str = "--set") -> GpuPolicy[Any]:
    """Return the policy of that name with settings NAME=VALUE parsed as its fields' types.

    option: that the settings are of. Raises `InputError`.
    """
    if name not in GPU_POLICIES:
        return gpu_policy(name)
    known = parameters_of(GPU_POLICIES[name])
    parameters: dict[str, Any] = {}
    for setting in settings:
        parameter, is_set, text = setting.partition("=")
        if not is_set:
            raise InputError(option, setting, "NAME=VALUE")
        if parameter not in known:
            raise InputError(f"{name}.{parameter}", text, nearest(parameter, known) if known else "no parameter")
        try:
            kind = get_type_hints(GPU_POLICIES[name])[parameter]
            parameters[parameter] = TypeAdapter(kind).validate_strings(text)
        except ValidationError as error:
            found = input_error(error)
            raise InputError(f"{name}.{parameter}", text, found.expected) from error
        except (NameError, PydanticUserError) as error:  # The policy is another package's.
            expected = f"a parameter whose type can be given as text ({str(error).splitlines()[0]})"
            raise InputError(f"{name}.{parameter}", text, expected) from error
    try:
        return gpu_policy(name, **parameters)
    except InputError as error:
        field = error.field if error.field.startswith(f"{name}.") else f"{name}.{error.field}"
        raise InputError(field, error.value, error.expected) from error
