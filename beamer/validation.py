"""Input checked, and pydantic's findings as the one-line `InputError`, with the nearest known key for an unknown one."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from inspect import Parameter, signature
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError, ValidationInfo, field_validator

from beamer.errors import InputError, nearest, shortened
from beamer.validation_messages import expected

M = TypeVar("M", bound=BaseModel)

_OF_YAML = re.compile(r"\A([+-]?)\.(?=(?:inf|Inf|INF|nan|NaN|NAN)\Z)")  # `.inf`, which pydantic calls `inf`
_OF_KEY = "[key]"  # pydantic ends the location of a key that is no text with this part; the part before is the key.
# pydantic names an unknown key so in a model and in a dataclass.
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


def input_error(error: ValidationError, record: type | None = None, prefix: str = "") -> InputError:
    """Return one finding of `error` as an `InputError`; `record`, a model or dataclass, is where unknown keys are looked up."""
    # A misspelt key explains a missing one better than the reverse.
    finding = min(error.errors(include_url=False), key=lambda f: f["type"] not in UNKNOWN_KEY)
    return finding_error(finding, record, prefix)


def checked(model: type[M], data: Any, field: str) -> M:
    """Return the content of a file as a model. field: what it is called as a whole. Raises `InputError`."""
    if not isinstance(data, dict):
        raise InputError(field, data, f"a mapping with {', '.join(model.model_fields)}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise input_error(error, model) from error


def finding_error(finding: Mapping[str, Any], record: Any = None, prefix: str = "") -> InputError:
    """Return one entry of pydantic's `errors()` as an `InputError`; `record` is where its unknown keys are looked up.

    record: a model or dataclass, or a union with one.
    """
    location: tuple[int | str, ...] = finding["loc"]
    path = prefix
    for part in location:
        if part != _OF_KEY:
            path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{shortened(part)}"
    if finding["type"] in UNKNOWN_KEY:
        known = _fields_at(_record_in(record), location[:-1])
        return InputError(path, finding["input"], nearest(str(location[-1]), known) if known else "no such key")
    if finding["type"].startswith("missing"):
        return InputError(path, None, expected(finding))  # The input of pydantic's finding is the object that lacks the field.
    cause = finding.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        # A refusal by the whole object already names its own field.
        return InputError(path, cause.value, cause.expected) if location else cause
    return InputError(path, finding["input"], expected(finding))


def _no_truth_value(cls: type[BaseModel], value: Any, info: ValidationInfo) -> Any:
    """Return a field's value. Raises `ValueError` for true or false where a number is expected: pydantic reads 1 and 0."""
    if _is_truth_for_number(cls.model_fields[str(info.field_name)].annotation, value):
        raise ValueError("a number, not true or false")
    return value


def _is_truth_for_number(annotation: Any, value: Any) -> bool:
    """Return whether true or false stands where a type has a number, or anywhere in a list or mapping of numbers."""
    kinds = list(_kinds(annotation))
    if isinstance(value, bool):
        return any(kind in (int, float) for kind in kinds) and bool not in kinds
    inner = [get_args(kind) for kind in kinds if get_origin(kind) is not None]
    if isinstance(value, Mapping):
        return any(_is_truth_for_number(types[1], one) for types in inner if len(types) == 2 for one in value.values())
    if isinstance(value, list | tuple):
        return any(_is_truth_for_number(types[0], one) for types in inner if types for one in value)
    return False


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value may have, without what restricts them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from _kinds(one)
    else:
        yield annotation


def check_truth_values(record: type, arguments: Mapping[str, Any], where: str) -> None:
    """Raise `InputError` where true or false stands for a number of a dataclass; `where` is what holds the fields."""
    annotations = get_type_hints(record, include_extras=True)
    for name, value in arguments.items():
        if _is_truth_for_number(annotations.get(name), value):
            raise InputError(f"{where}.{name}", value, "a number, not true or false")


numbers_alone = field_validator("*", mode="before")(classmethod(_no_truth_value))
"""A validator for models of files: true and false are no numbers."""


class FileEntry(BaseModel):
    """A mapping in a file: keys that it does not know are refused, and true and false are no numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    _numbers = numbers_alone


def build(record: Any, arguments: Mapping[str, Any], where: str) -> Any:
    """Return a dataclass of arguments that are checked against its fields. Raises `InputError` naming them below `where`."""

    class Checked(FileEntry):
        value: record

    check_truth_values(record, arguments, where)
    try:
        return Checked.model_validate({"value": arguments}).value
    except ValidationError as error:
        cause = error.errors()[0].get("ctx", {}).get("error")
        if isinstance(cause, InputError):
            raise InputError(f"{where}.{cause.field}", cause.value, cause.expected) from error
        found = input_error(error, Checked)
        raise InputError(where + found.field.removeprefix("value"), found.value, found.expected) from error


def check_arguments(of: str, call: Callable[..., Any], arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Check the arguments of a call by name. Raises `InputError` for one that is not in `known` and for one that is missing.

    of: what the field of the error begins with.
    """
    for name, value in arguments.items():
        if name not in known:
            raise InputError(f"{of}.{name}", value, nearest(name, known) if known else "no parameter")
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    for name, parameter in signature(call).parameters.items():
        if name not in arguments and parameter.default is Parameter.empty and parameter.kind not in variable:
            raise InputError(f"{of}.{name}", None, "a value, as it has no default")


def parameters_of(record: type) -> list[str]:
    """Return the names of a class's parameters: its fields if it is a dataclass, else none."""
    return [field.name for field in fields(record) if field.init] if is_dataclass(record) else []


def parsed_settings(of: str, record: type, settings: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Return settings NAME=VALUE of a command line, parsed as the types of a class's parameters. Raises `InputError`.

    of: what the field of the error begins with. option: that the settings are of.
    """
    known = parameters_of(record)
    parameters: dict[str, Any] = {}
    for setting in settings:
        name, is_set, text = setting.partition("=")
        if not is_set:
            raise InputError(option, setting, "NAME=VALUE")
        if name not in known:
            raise InputError(f"{of}.{name}", text, nearest(name, known) if known else "no parameter")
        try:
            plain = _OF_YAML.sub(r"\1", text)
            parameters[name] = TypeAdapter(get_type_hints(record)[name]).validate_strings(plain)
        except ValidationError as error:
            raise InputError(f"{of}.{name}", text, input_error(error).expected) from error
        except (NameError, PydanticUserError) as error:  # The class is another package's.
            expected = f"a parameter whose type can be given as text ({str(error).splitlines()[0]})"
            raise InputError(f"{of}.{name}", text, expected) from error
    return parameters


def _fields_at(record: type | None, location: tuple[int | str, ...]) -> list[str]:
    is_key = False  # whether the next part is a key of a mapping that a file fills as it likes
    for part in location:
        if record is None or isinstance(part, int):
            continue
        if is_key:
            is_key = False
            continue
        annotation = _fields(record).get(str(part))
        is_key = any(get_origin(kind) is dict for kind in _kinds(annotation))
        record = _record_in(annotation)
    return list(_fields(record)) if record else []


def _fields(record: type) -> dict[str, Any]:
    """Return the types of a model's or dataclass's fields by the key that each is given under."""
    if issubclass(record, BaseModel):
        return {field.alias or name: field.annotation for name, field in record.model_fields.items()}
    return {field.name: field.type for field in fields(record)} if is_dataclass(record) else {}


def _record_in(annotation: Any) -> type | None:
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or is_dataclass(annotation)):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _record_in(argument)
        if found:
            return found
    return None
