"""CoflowSim's fair sharing: a flow's rate is the smaller of 1 / flows at its two ports, anew in every step.

All flows of a pair of ports have one rate, so the pair counts what each of its flows has been served, and a flow ends where
that count reaches the flow's threshold. A pair follows whichever of its ports has more flows: its count is that port's count
and a constant, and the port's count at which the pair's next flow ends stays as it is while rates change.
"""

from typing import NamedTuple

import numpy as np

from beamer.network.arrays import Bools, Floats, Ints
from beamer.network.kernels.jit import kernel
from tests.compat.rates import NO_SIZE


class Switch(NamedTuple):
    """What is sent now; a pair is uplink * ports + downlink, both from 0.

    begin, stop, threshold, owner: every pair's flows, by threshold, and their coflows. flows, sent, soonest: by port, uplinks
    and then downlinks: its flows, what a flow that follows it was served, the count at which the next of those ends. due: the
    same, by port and by the pair's other port. follows, served: of a pair, its port and its count less that of its port.
    """

    begin: Ints
    stop: Ints
    threshold: Floats
    owner: Ints
    flows: Ints
    sent: Floats
    soonest: Floats
    due: Floats
    follows: Ints
    served: Floats
    touched: Bools
    stale: Bools


@kernel
def _insert(s: Switch, pair: int, coflow: int, size: float) -> None:
    limit = s.served[pair] + s.sent[s.follows[pair]] + size
    at = s.stop[pair]
    s.stop[pair] += 1
    while at > s.begin[pair] and s.threshold[at - 1] > limit:
        s.threshold[at], s.owner[at] = s.threshold[at - 1], s.owner[at - 1]
        at -= 1
    s.threshold[at], s.owner[at] = limit, coflow


@kernel
def _place(s: Switch, pair: int) -> None:
    """Let `pair` follow the right port."""
    ports = s.flows.size // 2
    up, down = pair // ports, ports + pair % ports
    old = s.follows[pair]
    new = old if s.flows[up] == s.flows[down] else up if s.flows[up] > s.flows[down] else down
    if new != old:
        s.follows[pair] = new
        s.served[pair] += s.sent[old] - s.sent[new]
        s.stale[old] = s.stale[new] = True
    head = s.threshold[s.begin[pair]] - s.served[pair] if s.begin[pair] < s.stop[pair] else np.inf
    s.due[up, pair % ports] = head if new == up else np.inf
    s.due[down, pair // ports] = head if new == down else np.inf


@kernel
def _update(s: Switch, arrivals: bool) -> None:
    """Bring up to date what depends on the flows of the ports that are touched; without arrivals few pairs change ports."""
    ports = s.flows.size // 2
    for port in range(2 * ports):
        if s.touched[port]:
            s.touched[port], s.stale[port] = False, True
            for other in range(ports):
                up, down = (port, ports + other) if port < ports else (other, port)
                pair = up * ports + down - ports
                less = s.flows[s.follows[pair]] < max(s.flows[up], s.flows[down])
                if arrivals or (less and s.begin[pair] < s.stop[pair]):
                    _place(s, pair)
    for port in range(2 * ports):
        if s.stale[port]:
            s.stale[port] = False
            s.soonest[port] = s.due[port].min()


@kernel
def _end_flows(s: Switch, port: int, left: Ints) -> None:
    """End the flows of pairs that follow `port` and have been served; `left` is the number of flows by coflow."""
    ports = s.flows.size // 2
    for other in range(ports):
        if s.due[port, other] - s.sent[port] <= NO_SIZE:
            up, down = (port, ports + other) if port < ports else (other, port)
            pair = up * ports + down - ports
            done = s.served[pair] + s.sent[port] + NO_SIZE
            s.touched[up] = s.touched[down] = True
            while s.begin[pair] < s.stop[pair] and s.threshold[s.begin[pair]] <= done:
                left[s.owner[s.begin[pair]]] -= 1
                s.begin[pair] += 1
                s.flows[up] -= 1
                s.flows[down] -= 1
            left_over = s.begin[pair] < s.stop[pair]
            s.due[port, other] = s.threshold[s.begin[pair]] - s.served[pair] if left_over else np.inf


@kernel
def _steps_to_end(s: Switch) -> float:
    """Return after how many whole steps the first flow has ended."""
    steps = np.inf
    for port in range(s.flows.size):
        if s.soonest[port] < np.inf:
            steps = min(steps, (s.soonest[port] - s.sent[port] - NO_SIZE) * s.flows[port])
    return float(max(np.ceil(steps), 1.0))


@kernel
def _run(s: Switch, start: Ints, order: Ints, first: Ints, up: Ints, down: Ints, size: Floats, end: Ints) -> None:
    ports = s.flows.size // 2
    left = first[1:] - first[:-1]
    now, arrived, done = 0, 0, 0
    while done < order.size:
        before = arrived
        if done == arrived:
            now = start[order[arrived]]
        while arrived < order.size and start[order[arrived]] == now:
            k = order[arrived]
            arrived += 1
            for f in range(first[k], first[k + 1]):
                _insert(s, up[f] * ports + down[f] - ports, k, size[f])
                for port in (up[f], down[f]):
                    s.flows[port] += 1
                    s.touched[port] = True
        _update(s, arrived > before)
        steps = _steps_to_end(s)
        if arrived < order.size:
            steps = min(steps, start[order[arrived]] - now)
        now += int(steps)
        for port in range(2 * ports):
            if s.flows[port] > 0:
                s.sent[port] += steps / s.flows[port]
        for port in range(2 * ports):
            if s.soonest[port] - s.sent[port] <= NO_SIZE:
                _end_flows(s, port, left)
        for i in range(done, arrived):
            if left[order[i]] == 0 and end[order[i]] < 0:
                end[order[i]] = now
        while done < arrived and end[order[done]] >= 0:
            done += 1


def fair(start: Ints, order: Ints, first: Ints, up: Ints, down: Ints, size: Floats, ports: int) -> Ints:
    """Return the step after which every coflow has ended. order: coflows by `start`. up, down, size (MiB): by flow."""
    pairs = ports * ports
    width = np.bincount(up * ports + down - ports, minlength=pairs)
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(width)[:-1]])
    switch = Switch(
        begin=begin,
        stop=begin.copy(),
        threshold=np.zeros(up.size),
        owner=np.zeros(up.size, np.int64),
        flows=np.zeros(2 * ports, np.int64),
        sent=np.zeros(2 * ports),
        soonest=np.full(2 * ports, np.inf),
        due=np.full((2 * ports, ports), np.inf),
        follows=np.arange(pairs) // ports,
        served=np.zeros(pairs),
        touched=np.zeros(2 * ports, np.bool_),
        stale=np.zeros(2 * ports, np.bool_),
    )
    end = np.full(start.size, -1)
    _run(switch, start, order, first, up, down, size, end)
    return end
