"""The network's description, read from the file that the controller and the commands beside it are given."""

from pathlib import Path

from beamer.network.fabric import Fabric
from beamer.yaml_files import read_mapping


def read_fabric(path: Path) -> Fabric:
    """Read a fabric from a JSON or YAML file. Raises `InputError`."""
    return Fabric.from_dict(read_mapping(path, "--fabric", "with name, hosts, switches and links"))
