"""The state of the kernels: the flows of jobs on links, as record arrays.

A *job* runs iterations; each releases its *phases* one after another, a phase being one coflow. A *flow* belongs to one phase
and loads the links of its path, its *hops*. Flows of a phase, phases of a job and hops of a flow are consecutive, from
`.._first` up to before `.._end`. A trace's coflow is a job of one iteration and one phase.

A *channel* is what is given a rate. Flows that the allocator treats alike (same path, same group) share one, so that a
thousand flows between two ports cost as much as one. All its flows move at the channel's rate: `served` counts the bits that
each has moved since the channel was made, and a flow is complete when that reaches its `finish`.

Records rather than an array for each field, because a call of a kernel with eighty arrays takes numba much longer than one with
a dozen.
"""

from typing import NamedTuple

import numpy as np

from beamer.network.arrays import Floats, Ints, Positions, Records

LINK = np.dtype(
    [
        ("capacity", "f8"),  # bit/s
        ("own", "i8"),  # 1: the link is of one sender of a job, in series with links that all share; 0: it is shared.
        ("first", "i8"),  # start of its lists of ENTRY and CARRIER
        ("moved", "f8"),  # bits carried by flows that were stopped on their way
        # The following fields are working space of the allocators.
        ("free", "f8"),  # bit/s left
        ("weight", "f8"),  # flows that share it, each by its use
        ("users", "i8"),  # flows that share it
        ("size", "i8"),  # length of its list of ENTRY, or of USER
        ("segment", "i8"),  # segment of the first group there; -1: none
        ("last_segment", "i8"),  # segment of the last group there
        ("full", "f8"),  # key after which nothing is free
        ("carriers", "i8"),  # length of its list of CARRIER
        ("delta", "f8"),  # change of the capacity taken by the flows that a sweep has passed
        ("cursor", "i8"),  # the flow that the sweep recomputes next
    ]
)
HOP = np.dtype(
    [
        ("link", "u4"),
        ("load", "i4"),  # its (job, link) pair, -1 if outside the footprint
        ("use", "f8"),  # bit/s on the link for each bit/s of the flow
    ]
)
FLOW = np.dtype(  # The record is small, as allocators run over all flows.
    [
        ("hop_first", "u4"),
        ("hop_end", "u4"),
        ("moves", "?"),  # The flow has something to move over the network.
        ("active", "?"),
        ("carries", "?"),  # The flow has a rate, under allocators that give most flows none.
    ]
)
MOTION = np.dtype(  # This record has the other fields of each flow.
    [
        ("path", "i4"),  # flows with equal hops have an equal number
        ("job", "i4"),
        ("channel", "i4"),  # -1: none
        ("left", "i4"),  # neighbours in the channel's skew heap
        ("right", "i4"),
        ("size", "f8"),  # bits
        ("finish", "f8"),  # bits served by its channel at which it is complete
        ("key", "f8"),  # position in the order of all flows
    ]
)
ENTRY = np.dtype(  # Entries form lists by link, from LINK.first on.
    [
        ("item", "i4"),  # user of the link, the most urgent first
        ("bottleneck", "i4"),  # the full link that blocked the flow last
        ("key", "f8"),  # its position in the order
    ]
)
CARRIER = np.dtype(  # Carriers form lists by link, from LINK.first on: the flows that have a rate there, most urgent first.
    [
        ("flow", "i8"),
        ("key", "f8"),
        ("amount", "f8"),  # capacity taken, bit/s
    ]
)
USER = np.dtype(  # Users form lists by link, from LINK.first on: the channels there, group after group.
    [
        ("channel", "u4"),
        ("hop", "u4"),  # hop of the channel's path
    ]
)
TAKE = np.dtype(  # The record belongs to an entry of a list of USER.
    [
        ("flows", "f8"),  # flows of the channel, as of its rate, each by its use
        ("rate", "f8"),  # rate of the channel, bit/s; NEVER while it is given up
    ]
)
PLACE = np.dtype([("segment", "u4"), ("at", "u4")])  # The record says where a hop of a channel's path is in World.users.
SEGMENT = np.dtype(  # A segment is the channels of one group on one link: a part of the link's list of USER.
    [
        ("link", "u4"),
        ("group", "u4"),
        ("first", "u4"),  # start in World.users; channels that have flows come first
        ("active", "u4"),  # number of its channels that have flows
        ("after", "i4"),  # the segment of the link's next group, -1: none
        # the next segment of its group whose capacity has changed; -1: none; NOT_WAITING: its own has not changed
        ("waiting", "i4"),
        ("way", "i4"),  # the change of its capacity: to less, to more, or first one and then the other
        ("users", "i4"),  # number of its channels without a rate yet; like the next two, while a group is filled anew
        ("weight", "f8"),  # flows that share it, each by its use
        ("left", "f8"),  # bit/s
    ]
)
FILL = np.dtype(  # The record belongs to a segment.
    [
        ("free", "f8"),  # bit/s that groups before it leave
        ("load", "f8"),  # bit/s that its channels take
        ("holds", "i8"),  # channels that it holds back
        ("decided", "i8"),  # the last pass that came across the segment; `apart` is right for it
        ("apart", "i8"),  # 1: the pass left the segment out, as it held back no channel before.
        ("overfull", "i8"),  # the update in which it was found to be overfull after a pass without it
        ("before", "f8"),  # the level at which it filled up last, bit/s
        # The next six fields are right while the segment is in World.levels.
        ("used", "f8"),  # bit/s that its channels with rates of at most `split` take
        ("weight", "f8"),  # flows of its other channels, each by its use
        ("lowest", "f8"),  # the lowest rate of its other channels, bit/s; NEVER while all are given up
        ("split", "f8"),  # the rate that tells these channels from the others, bit/s
        ("summed", "i8"),  # the pass for which these four fields are right
        ("exact", "i8"),  # the pass for which its key in World.levels is right
        ("marked", "i8"),  # 1: the segment is in World.marked.
        ("bound", "f8"),  # the level below which it does not fill up, bit/s, while it is in World.marked
        ("relaxed", "i8"),  # the pass in which the channels that it holds back were given up
        ("changed", "i8"),  # the pass in which what its channels take has changed
    ]
)
GIVEN = np.dtype(  # The record says what a channel is given.
    [
        ("rate", "f8"),  # bit/s
        ("listed", "i8"),  # the update in which it was listed in World.settled last
        ("before", "f8"),  # bit/s that all its flows had together before it was given up
        ("count", "i8"),  # number of its flows, as of the rate
        ("holder", "i8"),  # the segment that holds it back, a full one, on which no channel has a higher rate; -1: none
        ("mark", "i8"),  # 2 p: given up in pass p; 2 p + 1: given a rate in it
    ]
)
GROUP = np.dtype(
    [
        ("channel_first", "i4"),
        ("channel_end", "i4"),
        ("segment_first", "i4"),
        ("segment_end", "i4"),
        ("changed", "i4"),  # a channel of it whose flows have changed, -1: none; the others follow by CHANNEL.following
        ("waiting", "i4"),  # a segment of it whose capacity has changed, -1: none
    ]
)
PHASE = np.dtype([("flow_first", "i8"), ("flow_end", "i8")])
JOB = np.dtype(
    [
        ("phase_first", "i8"),
        ("phase_end", "i8"),
        ("load_first", "i8"),  # its (job, link) pairs
        ("load_end", "i8"),
        ("iterations", "i8"),
        ("compute", "f8"),  # seconds per iteration
        ("overlap", "f8"),
        ("running", "?"),
        ("done", "i8"),  # iterations
        ("began", "f8"),  # start of its present iteration, seconds
        ("phase", "i8"),  # the phase in flight, or the next one
        ("in_flight", "i8"),  # flows of it that still move
        ("awaited", "i8"),  # parts still awaited, of computing and synchronisation
        ("released", "f8"),  # release of the latest coflow, seconds
        ("group", "i8"),  # Jobs of one group share; a lower group goes first.
    ]
)
CHANNEL = np.dtype(
    [
        ("hop_first", "u4"),  # first hop of its flows' path
        ("hop_end", "u4"),
        ("group", "u4"),  # position among the groups
        ("following", "i4"),  # another channel of its group whose flows have changed, -1: none
        ("noted", "i8"),  # the allocation in which the change was noted
        ("count", "i4"),  # flows in it
        ("top", "i4"),  # the flow that ends first, -1: none
        ("finish", "f8"),  # finish of `top`, bits served
        ("rate", "f8"),  # bit/s
        ("served", "f8"),  # bits
        ("since", "f8"),  # time of the last update of `served`, seconds
    ]
)
HEAP = np.dtype([("item", "u4"), ("position", "i4"), ("key", "f8")])
NOW = np.dtype(
    [
        ("s", "f8"),  # the time
        ("complete", "i8"),  # coflows that the last ends of flows have completed
        ("channels", "i8"),  # number of channels
        ("lists_ends", "?"),  # True: the channels' ends are listed in World.due instead of the heap World.ends.
        ("changes", "i8"),  # entries in World.changed
        ("groups", "i8"),  # number of groups
        ("passes", "i8"),  # passes so far that brought rates up to date
        ("settled", "i8"),  # rates that the last update has given, in both fills
        ("touched", "i8"),  # segments where this pass has changed what channels take
        ("marked", "i8"),  # segments that are to be queued by their levels
        ("update", "i8"),  # the first pass of the present update
        ("refill", "i8"),  # the first pass over the present group
        ("level", "f8"),  # the level that this pass has reached, bit/s
        ("reordered", "?"),  # True: the order has changed since the last allocation.
        ("coflows", "?"),  # True: a coflow has started or ended since the last allocation.
    ]
)


class Fill(NamedTuple):
    """One of the two fills whose sum rates are.

    takes: a `TAKE` for each entry of `World.users`. segments: a `FILL` for each of `World.segments`. channels: a `GIVEN` for
    each of `World.channels`.
    """

    takes: Records
    segments: Records
    channels: Records


class World(NamedTuple):
    """The whole state; each field is a record array of the type of its name, except for these.

    ends: heap of channels by the end of their next flow. due: that end by channel, NEVER if there is none, where the rates of
    many change at once: to scan a list is then faster than to maintain a heap. soonest: the first of each block of these,
    OUTDATED where one has changed. channel_of: a channel of each path, of any group; path_of: the path of each channel.
    minimum, beyond: the fill of minimum shares, and that of what is left. settled, touched, marked: lists of as many channels,
    or segments, as `NOW` says. timers: 2 j for the end of job j's computing, 2 j + 1 for the start of its synchronisation.
    levels: segments by the rate at which they fill up. queue: links l, and flows f as len(links) + f, that a sweep has to
    recompute. changed: flows that started, and ~f for those that ended, since the last allocation. now: one record.
    """

    links: Records
    hops: Records
    flows: Records
    motion: Records
    entries: Records
    carriers: Records
    users: Records
    places: Records
    segments: Records
    minimum: Fill
    beyond: Fill
    groups: Records
    phases: Records
    jobs: Records
    channels: Records
    ends: Records
    due: Floats
    soonest: Floats
    channel_of: Ints
    path_of: Ints
    settled: Positions
    touched: Positions
    marked: Positions
    timers: Records
    levels: Records
    queue: Records
    changed: Ints
    now: Records
