"""Turns pydantic's findings into the project's one-line `InputError`, with the nearest known key for an unknown one."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from beamer.errors import InputError, nearest


def input_error(error: ValidationError, model: type[BaseModel] | None = None, prefix: str = "") -> InputError:
    """Return the first finding of `error` as an `InputError`; `model` is where its unknown keys are looked up."""
    return finding_error(error.errors(include_url=False)[0], model, prefix)


def finding_error(finding: Mapping[str, Any], model: type[BaseModel] | None = None, prefix: str = "") -> InputError:
    """Return one entry of pydantic's `errors()` as an `InputError`; `model` is where its unknown keys are looked up."""
    location: tuple[int | str, ...] = finding["loc"]
    path = prefix
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{part}"
    if finding["type"] == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        return InputError(path, finding["input"], nearest(str(location[-1]), known) if known else "no such key")
    if finding["type"] == "missing":
        return InputError(path, None, "a value (it is required)")
    context: dict[str, Any] = finding.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, InputError):
        return InputError(path, cause.value, cause.expected)
    expected = finding["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return InputError(path, finding["input"], expected)


def _fields_at(model: type[BaseModel] | None, location: tuple[int | str, ...]) -> list[str]:
    for part in location:
        if model is None or isinstance(part, int):
            continue
        field = model.model_fields.get(str(part))
        model = _model_in(field.annotation) if field else None
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found:
            return found
    return None
