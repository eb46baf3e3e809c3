"""The ablation of Beamer's horizon: what considering more than the running stage is worth."""

from beamer.network.policies.beamer import Beamer


class BeamerStage(Beamer):
    """Order stages by their own remaining work, whatever their studies have declared to follow; otherwise as `beamer`."""

    name = "beamer-stage"
    looks_ahead = False
