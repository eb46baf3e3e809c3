"""Channels by group and path: which flows move at one rate, for allocators that treat them alike."""

import numpy as np

from beamer.network.arrays import Ints
from beamer.network.kernels.channels import BLOCK, NEVER, OUTDATED, bits_left, enter, has_traffic
from beamer.network.kernels.jit import kernel
from beamer.network.kernels.state import World


@kernel
def rearrange(w: World, order: Ints) -> None:
    """Put the flows of all jobs into channels by group and path, with the bits that they have left, in O(F + J log J).

    Channels come group after group, within a group as the flows of `order` need them; groups are numbered anew.
    """
    groups = np.empty(len(order), np.int64)
    for i in range(len(order)):
        job = w.jobs[order[i]]
        groups[i] = job.group
        for p in range(job.phase_first, job.phase_end):
            for f in range(w.phases[p].flow_first, w.phases[p].flow_end):
                if w.flows[f].active:
                    w.motion[f].finish = bits_left(w, f)  # The bits left are taken while the channels are as they were.
    c = group = -1
    before = np.int64(0)
    for i in np.argsort(groups, kind="mergesort"):
        j = order[i]
        if group < 0 or groups[i] != before:
            before = groups[i]
            group += 1
            w.groups[group].channel_first = w.groups[group].channel_end = c + 1
        for p in range(w.jobs[j].phase_first, w.jobs[j].phase_end):
            for f in range(w.phases[p].flow_first, w.phases[p].flow_end):
                if not has_traffic(w, j, p, f):
                    continue
                path = w.motion[f].path
                at = w.channel_of[path]
                # The path's known channel may be of another group.
                if not (w.groups[group].channel_first <= at <= c and w.path_of[at] == path):
                    c += 1
                    at = c
                    w.channel_of[path] = c
                    w.path_of[c] = path
                    w.groups[group].channel_end = c + 1
                    ch = w.channels[c]
                    ch.hop_first = w.flows[f].hop_first
                    ch.hop_end = w.flows[f].hop_end
                    ch.group = group
                    ch.rate = 0.0
                    ch.served = 0.0
                    ch.since = w.now[0].s
                    ch.top = -1
                    ch.count = 0
                    w.due[c] = NEVER
                    w.soonest[c // BLOCK] = OUTDATED
                w.motion[f].channel = at
                if w.flows[f].active:
                    enter(w, f, w.motion[f].finish)
    w.now[0].channels = c + 1
    w.now[0].groups = group + 1
