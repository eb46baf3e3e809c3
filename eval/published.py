"""What others have published of the ideas that are rebuilt here: factors, and why figures here differ, in words.

All of it is in `eval/configs/published.yaml`, and in no other place.
"""

from collections.abc import Mapping
from pathlib import Path

from beamer.yaml_files import read_mapping
from eval.config_section import ConfigSection

CONFIG = Path(__file__).parent / "configs" / "published.yaml"


class PublishedFactor(ConfigSection):
    """A baseline's metric over the idea's own, as published.

    factor: None where it is only said to be above 1. up_to: whether that is the largest that was seen. searched: whether a grid
    of conditions is searched for it.
    """

    baseline: str
    metric: str
    factor: float | None = None
    up_to: bool = False
    searched: bool = True

    def __str__(self) -> str:
        return "above 1" if self.factor is None else f"{'up to ' if self.up_to else ''}{self.factor:.2f}"


class Publication(ConfigSection):
    """What is published of an idea.

    source: authors and year. claim: its result in words. why: figures here differ, in short. more: what else there is to say.
    """

    title: str
    source: str
    claim: str
    factors: tuple[PublishedFactor, ...]
    why: str
    more: str = ""

    @property
    def reasons(self) -> str:
        """Why figures here differ, as a section of the docs."""
        return "\n".join(filter(None, (self.why, self.more)))


def read_published(path: Path = CONFIG) -> Mapping[str, Publication]:
    """Return what is published, by the name of the policy that rebuilds it."""
    found = read_mapping(path, "the publications", "of publications by policy")
    return {name: Publication.model_validate(one) for name, one in found.items()}
