"""An interpreter of its own for a peer, whose packages are older than ours, made once per list of packages."""

import os
import subprocess
import sys
import venv
from hashlib import sha256
from pathlib import Path

from beamer.errors import PlatformError
from eval.peers.base import Peer

COMPLETE = "complete"  # a file in an environment that has all its packages


def interpreter(peer: Peer, cache: Path, given: Path | None) -> Path:
    """Return the interpreter that runs a peer: the one given, or that of an environment in `cache`, made if it is absent.

    Raises `PlatformError` if this Python is not one that has the peer's packages, or if they cannot be installed.
    """
    if given:
        return given
    lists = [path for name in ("build-requirements.txt", "requirements.txt") if (path := peer.folder / name).exists()]
    folder = cache / f"venv-{peer.name}-{sha256(b''.join(path.read_bytes() for path in lists)).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    if (folder / COMPLETE).exists():
        return python
    versions = ", ".join(f"{major}.{minor}" for major, minor in peer.python)
    remedy = f"name an interpreter that has those of {lists[-1]} with --python"
    if sys.version_info[:2] not in peer.python:
        raise PlatformError(f"{peer.title} needs packages that exist for Python {versions}", remedy)
    print(f"making {folder} for {peer.title}", file=sys.stderr)
    venv.create(folder, clear=True, with_pip=True)
    for requirements in lists:
        # Packages that building needs are installed before, at the versions that the packages need.
        options = ["--no-build-isolation"] if requirements != lists[0] else []
        command = [str(python), "-m", "pip", "install", "--quiet", *options, "--requirement", str(requirements)]
        if subprocess.run(command, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}).returncode:
            raise PlatformError(f"the packages of {requirements} could not be installed", remedy)
    (folder / COMPLETE).touch()
    return python
