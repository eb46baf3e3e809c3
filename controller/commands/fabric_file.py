"""The network's description, read from the file that the controller and the commands beside it are given."""

from pathlib import Path

import yaml

from beamer.errors import InputError
from beamer.network.fabric import Fabric


def read_fabric(path: Path) -> Fabric:
    """Read a fabric from a JSON or YAML file. Raises `InputError`."""
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("fabric", str(path), f"a readable file ({error})") from error
    except yaml.YAMLError as error:
        raise InputError("fabric", str(path), f"valid JSON or YAML ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict):
        raise InputError("fabric", str(path), "a mapping with name, hosts, switches and links")
    return Fabric.from_dict(data)
