"""The claims that `python -m eval gpu` checks: one per file, each registered here under its name."""

from eval.gpu.claims.base import Claim, Contender, Figures, Inputs, Results
from eval.gpu.claims.elastic import Elastic
from eval.gpu.claims.hermes import Hermes

__all__ = ["CLAIMS", "Claim", "Contender", "Figures", "Inputs", "Results"]

_CLAIMS: tuple[type[Claim], ...] = (Hermes, Elastic)
CLAIMS: dict[str, type[Claim]] = {claim.name: claim for claim in _CLAIMS}
