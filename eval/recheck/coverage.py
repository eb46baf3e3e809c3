"""What committed tables have no figures of, though it is registered: policies and faults that were added since.

To add one asks for no experiment: `python -m eval recheck --older` lists what is missing, and who makes a release decides.
"""

from collections.abc import Callable, Collection, Mapping

from beamer.gpu.policies import GPU_POLICIES
from eval.engines.report import COMMITTED as ENGINES
from eval.faults.catalogue import FAULTS as KNOWN_FAULTS
from eval.faults.report import COMMITTED as FAULTS
from eval.gpu.study import read as read_gpu


def _engines() -> Collection[str]:
    return {one.policy for one in ENGINES.read().outcomes}


def _gpu() -> Collection[str]:
    config = read_gpu()
    claims = [config.claim(name) for name in config.claims]
    return {one.policy for claim in claims for cell in claim.cells() for one in claim.contenders(cell)}


def _faults() -> Collection[str]:
    return FAULTS.read().outcomes


WHOLE: Mapping[str, tuple[Callable[[], Collection[str]], Collection[str]]] = {
    "engines": (_engines, GPU_POLICIES),
    "gpu": (_gpu, GPU_POLICIES),
    "faults": (_faults, KNOWN_FAULTS),
}
"""By table that is meant to have all of a kind: what it has, and what there is."""


def lacking(tables: Mapping[str, tuple[Callable[[], Collection[str]], Collection[str]]] = WHOLE) -> dict[str, list[str]]:
    """Return the registered names of which a table has no figures, by table; tables that have all are left out."""
    found = {table: [name for name in known if name not in had] for table, (read, known) in tables.items() for had in [read()]}
    return {table: names for table, names in found.items() if names}
