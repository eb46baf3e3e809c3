"""YAML files that people write, read in one way: whatever keeps one from being read is bad input, named by its field."""

from pathlib import Path
from typing import Any

import yaml

from beamer.errors import InputError


def read_yaml(path: Path, field: str) -> Any:
    """Return the content of a YAML or JSON file. Raises `InputError` about `field`, the option or argument that named it."""
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(field, str(path), f"a readable file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(field, str(path), f"text in UTF-8 ({error.reason} at byte {error.start})") from error
    except (yaml.YAMLError, ValueError) as error:  # the latter for a date that does not exist
        raise InputError(field, str(path), f"valid YAML ({' '.join(str(error).split())})") from error
    except RecursionError as error:
        raise InputError(field, str(path), "YAML that is not nested as deeply as this") from error


def read_mapping(path: Path, field: str, content: str) -> dict[str, Any]:
    """Return the mapping in a file, as `read_yaml` does; content: what it maps, for the message."""
    data = read_yaml(path, field)
    if not isinstance(data, dict):
        raise InputError(field, str(path), f"a mapping {content}")
    return data
