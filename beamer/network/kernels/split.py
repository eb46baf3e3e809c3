"""Equal split, as in CoflowSim: a flow's rate is the least, over its links, of capacity / flows there; the rest stays free.

`allocate` counts the flows on every link and sets all rates, O(C h) for C channels of h hops. `update` corrects the counts by
the flows that have started and ended, then sets the rates of the channels on those links alone.
"""

from beamer.network.kernels.channels import NEVER, set_rate
from beamer.network.kernels.jit import inner, unsigned
from beamer.network.kernels.state import World


@inner
def _assign(w: World, c: int) -> None:
    """Give channel `c` its rate."""
    ch = w.channels[c]
    rate = 0.0
    if ch.count > 0:
        rate = NEVER
        for h in range(ch.hop_first, ch.hop_end):
            link = w.links[w.hops[h].link]
            rate = min(rate, link.capacity / (link.users * w.hops[h].use))
    if rate != ch.rate:
        set_rate(w, c, rate)


@inner
def allocate(w: World) -> None:
    """Give all channels, as `grouping.rearrange` has just made them, their rates."""
    for link in w.links:
        link.users = 0
        link.size = 0
        link.delta = 0.0
    for c in range(w.now[0].channels):
        ch = w.channels[c]
        for h in range(ch.hop_first, ch.hop_end):
            link = w.links[w.hops[h].link]
            link.users += ch.count
            w.users[link.first + link.size].channel = c
            link.size += 1
    for c in range(w.now[0].channels):
        _assign(w, unsigned(c))


@inner
def update(w: World) -> None:
    """Bring the rates up to date with the flows that have started and ended: only their links' channels change."""
    # Correct the counts and mark the links.
    for i in range(w.now[0].changes):
        step = 1 if w.changed[i] >= 0 else -1
        f = w.changed[i] if step > 0 else ~w.changed[i]
        for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
            w.links[w.hops[h].link].users += step
            w.links[w.hops[h].link].delta = 1.0
    # Set the rates on marked links, each once.
    for i in range(w.now[0].changes):
        f = w.changed[i] if w.changed[i] >= 0 else ~w.changed[i]
        for h in range(w.flows[f].hop_first, w.flows[f].hop_end):
            link = w.links[w.hops[h].link]
            if link.delta > 0.0:
                link.delta = 0.0
                for at in range(link.first, link.first + link.size):
                    _assign(w, w.users[at].channel)
