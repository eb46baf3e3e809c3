"""What a policy remembers as plain JSON, as the journal keeps it, and back."""

import json
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from beamer.decision.policy import Policy
from beamer.errors import InputError
from beamer.validation import input_error

S = TypeVar("S")


def write_state(policy: Policy[S], state: S) -> Any:
    """Return a state as plain JSON. Raises `InputError` for one that `read_state` would not return, such as infinity."""
    try:
        plain = json.loads(_adapter(policy).dump_json(state))
    except ValueError as error:  # pydantic raises a ValueError for a value that has no form in JSON.
        raise InputError(
            f"state of {policy.name}", state, f"a {policy.State.__name__} that has a form in JSON ({error})"
        ) from error
    if read_state(policy, plain) != state:
        raise InputError(f"state of {policy.name}", state, "a state that is the same after a way through JSON")
    return plain


def read_state(policy: Policy[S], plain: Any) -> S:
    """Return the state that `write_state` wrote. Raises `InputError` for anything else, another version's fields among it."""
    names = {field.name for field in fields(policy.State)}  # type: ignore[arg-type]  # Every state is a dataclass.
    if not isinstance(plain, dict) or plain.keys() != names:
        raise InputError(f"state of {policy.name}", plain, f"a mapping with {', '.join(sorted(names)) or 'no key'}")
    try:
        state: S = _adapter(policy).validate_python(plain)
    except ValidationError as error:
        raise input_error(error, prefix=f"state of {policy.name}") from error
    return state


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(policy: Policy[Any]) -> TypeAdapter[Any]:
    """Return what reads and writes a policy's states; making it takes a thousand times as long as using it."""
    if policy.State not in _ADAPTERS:
        _ADAPTERS[policy.State] = TypeAdapter(policy.State)
    return _ADAPTERS[policy.State]
