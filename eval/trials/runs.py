"""What is tried, as in `eval/configs/trials.yaml`, and one run of it: `beamer` with constants changed, or another policy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import Field

from beamer.errors import InputError, nearest
from beamer.network.policies import beamer
from eval.config_section import ConfigSection
from eval.network.cells import BY_CLASSES, Cell, Contender
from eval.network.runs import run_contender

POLICY = "beamer"
MEASURES = ("mean_s", "p95_s")


class Variant(ConfigSection):
    """A policy, with some constants of `beamer`'s module changed. allocator, survivors: as of `Contender`."""

    policy: str = POLICY
    allocator: str = BY_CLASSES
    survivors: bool = False
    constants: dict[str, float] = Field(default_factory=dict)


class TrialGroup(ConfigSection):
    """Variants that are compared with each other, on cells of the study of network policies.

    title: what its tables are of. reference: the variant that ratios are to.
    """

    title: str
    reference: str
    variants: tuple[str, ...]
    cells: tuple[str, ...] = Field(min_length=2)


class TrialsConfig(ConfigSection):
    """What the trials consist of, as in the config file. queues: classes of a live network."""

    seeds: int = Field(ge=2)
    first_seed: int
    queues: int
    variants: dict[str, Variant]
    groups: dict[str, TrialGroup]

    def model_post_init(self, context: Any) -> None:
        """Check that what is named exists. Raises `InputError`."""
        constants = [name for name, value in vars(beamer).items() if isinstance(value, float)]
        for variant in self.variants.values():
            for name in variant.constants:
                if name not in constants:
                    raise InputError("constants", name, nearest(name, constants))
            if variant.constants and variant.policy != POLICY:
                raise InputError("constants", variant.policy, f"none but with {POLICY}, whose they are")
        for group in self.groups.values():
            for name in (group.reference, *group.variants):
                if name not in self.variants:
                    raise InputError("variants", name, nearest(name, self.variants))

    def compared(self) -> dict[str, list[str]]:
        """Return the variants that are run on each cell."""
        found: dict[str, list[str]] = {}
        for group in self.groups.values():
            for cell in group.cells:
                known = found.setdefault(cell, [])
                known += [name for name in (group.reference, *group.variants) if name not in known]
        return found


@contextmanager
def changed(constants: Mapping[str, float]) -> Iterator[None]:
    """Give constants of the policy's module other values, in this process and for as long as the context."""
    before = {name: getattr(beamer, name) for name in constants}
    try:
        vars(beamer).update(constants)
        yield
    finally:
        vars(beamer).update(before)


def run_variant(cell: Cell, variant: Variant, queues: int, seed: int) -> dict[str, float]:
    """Return the weighted mean and the 95th percentile of the SCTs of a variant on the work of a seed, seconds."""
    with changed(variant.constants):
        contender = Contender(policy=variant.policy, allocator=variant.allocator, survivors=variant.survivors)
        found = run_contender(cell, contender, queues, seed)
    return {measure: found[measure] for measure in MEASURES}
