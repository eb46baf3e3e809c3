"""The claims that `python -m eval gpu` checks: one per file, each registered here under its name."""

from eval.gpu.claims.base import Claim, Contender, Figures, Inputs, Results
from eval.gpu.claims.elastic import Elastic
from eval.gpu.claims.hermes import Hermes
from eval.gpu.claims.ones import Ones
from eval.gpu.claims.optimus import Optimus
from eval.gpu.claims.pollux import Pollux

__all__ = ["CLAIMS", "Claim", "Contender", "Figures", "Inputs", "Results"]

_CLAIMS: tuple[type[Claim], ...] = (Hermes, Optimus, Ones, Elastic, Pollux)
CLAIMS: dict[str, type[Claim]] = {claim.name: claim for claim in _CLAIMS}
