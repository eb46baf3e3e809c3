"""The claims that `python -m eval gpu` checks: one per file, each registered here under its name."""

from eval.gpu.claim import Claim, Figures, GpuContender, Inputs, Results
from eval.gpu.claims.elastic import ElasticClaim
from eval.gpu.claims.hermes import HermesClaim
from eval.gpu.claims.ones import OnesClaim
from eval.gpu.claims.optimus import OptimusClaim
from eval.gpu.claims.pollux import PolluxClaim

__all__ = ["CLAIMS", "Claim", "Figures", "GpuContender", "Inputs", "Results"]

_CLAIMS: tuple[type[Claim], ...] = (HermesClaim, OptimusClaim, OnesClaim, ElasticClaim, PolluxClaim)
CLAIMS: dict[str, type[Claim]] = {claim.name: claim for claim in _CLAIMS}
