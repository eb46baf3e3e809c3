"""Channels by group and path: which flows move at one rate, for allocators that treat them alike."""

import numpy as np

from beamer.network.arrays import Ints
from beamer.network.kernels.channels import NEVER, bits_left, enter, has_traffic
from beamer.network.kernels.jit import kernel
from beamer.network.kernels.state import World


@kernel
def rearrange(w: World, order: Ints) -> None:
    """Put the flows of all jobs into channels by group and path, with the bits that they have left, in O(F log F).

    Channels come group after group; their groups are numbered anew.
    """
    flows = np.empty(len(w.flows), np.int64)
    number = 0
    paths = 0
    for j in order:
        for p in range(w.jobs[j].phase_first, w.jobs[j].phase_end):
            for f in range(w.phases[p].flow_first, w.phases[p].flow_end):
                if w.flows[f].active:
                    w.motion[f].finish = bits_left(w, f)
                if has_traffic(w, j, p, f):
                    flows[number] = f
                    number += 1
                    paths = max(paths, w.motion[f].path + 1)
    kind = np.empty(number, np.int64)
    for i in range(number):
        kind[i] = w.jobs[w.motion[flows[i]].job].group * paths + w.motion[flows[i]].path
    c = -1
    group = -1
    before = np.int64(-1)
    for i in np.argsort(kind, kind="mergesort"):
        f = flows[i]
        if kind[i] != before:
            c += 1
            ch = w.channels[c]
            if before < 0 or kind[i] // paths != before // paths:
                group += 1
                w.groups[group].channel_first = c
            before = kind[i]
            w.groups[group].channel_end = c + 1
            ch.hop_first = w.flows[f].hop_first
            ch.hop_end = w.flows[f].hop_end
            ch.group = group
            ch.rate = 0.0
            ch.served = 0.0
            ch.since = w.now[0].s
            ch.top = -1
            ch.count = 0
            w.due[c] = NEVER
        w.motion[f].channel = c
        if w.flows[f].active:
            enter(w, f, w.motion[f].finish)
    w.now[0].channels = c + 1
    w.now[0].groups = group + 1
