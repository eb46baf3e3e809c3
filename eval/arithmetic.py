"""What decides how this process rounds, and so the last digits of figures: by which results name what made them.

Figures of policies that fit curves change with it where a rounding decides: OpenBLAS chooses its kernels by the processor, and
NumPy the instructions of its functions. `OPENBLAS_CORETYPE` names another kernel, `NPY_DISABLE_CPU_FEATURES` excludes
instructions.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

PACKAGES = ("numpy", "scipy", "numba")
LIBRARIES = ("numpy.linalg", "scipy.linalg")
"""Modules with which the libraries of linear algebra are loaded: NumPy and SciPy have one each."""


@lru_cache
def arithmetic() -> Mapping[str, str]:
    """Return what this process calculates with, by name: versions, `blas` with its kernels, `simd`: instructions of NumPy."""
    for library in LIBRARIES:
        import_module(library)
    found = {f"{one['internal_api']} {one['version']} {one.get('architecture', '')}".strip() for one in _libraries()}
    simd: Mapping[str, Any] = np.show_config(mode="dicts")["SIMD Extensions"]
    used = [*simd.get("baseline", []), *simd.get("found", [])]
    versions = {"python": python_version()} | {package: version(package) for package in PACKAGES}
    return versions | {"blas": ", ".join(sorted(found)), "simd": used[-1] if used else "none"}


def kernels() -> str:
    """Return the kernels of linear algebra alone, which the processor decides, whatever the version of a library."""
    arithmetic()  # loads the libraries
    return ", ".join(sorted({str(one.get("architecture", "")) for one in _libraries()}))


def _libraries() -> list[dict[str, Any]]:
    return [one for one in threadpool_info() if one["user_api"] == "blas"]


def calculated(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, Mapping[str, str]]:
    """Return what a function returns, and what this process calculated it with."""
    return function(*arguments), dict(arithmetic())
