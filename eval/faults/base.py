"""What a fault is, and what comes of trying it: the seam that each fault of this folder stands behind."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

PATIENCE_S = 60.0  # Whatever must come has so long; nothing is measured by this.


def _nothing_missing() -> str | None:
    return None


@dataclass(frozen=True)
class FaultOutcome:
    """What came of a fault.

    times: how often it was made to happen. acknowledged: writes that the controller had answered with success. lost: of these,
    not known afterwards. plans: compared with the plan before. differing_plans: of these. recovery_s: from a fault to the end
    of its effect, one by one. counts: what else was counted. failures: what should not have been, in words.
    """

    times: int
    acknowledged: int = 0
    lost: int = 0
    plans: int = 0
    differing_plans: int = 0
    recovery_s: tuple[float, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "FaultOutcome":
        """Return the outcome that `as_json` is of."""
        lists = {name: tuple(document[name]) for name in ("recovery_s", "failures")}
        return cls(**{**document, **lists})

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)

    @property
    def is_good(self) -> bool:
        """Whether everything was as it should be."""
        return not (self.lost or self.differing_plans or self.failures)


@dataclass(frozen=True)
class Fault:
    """A fault that can be made to happen.

    name: on the command line. about: what is done. recovery: from when to when `recovery_s` lasts. run: makes it happen so many
    times, with random numbers from a seed. times: in the committed figures. missing: returns what is not installed here that it
    needs, None if nothing.
    """

    name: str
    about: str
    recovery: str
    run: Callable[[int, int], FaultOutcome]
    times: int
    missing: Callable[[], str | None] = _nothing_missing
