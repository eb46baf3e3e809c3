"""Bounds for chained stages: a study, whose stages run one after another, is one item."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array  # type: ignore[import-untyped]

from beamer.bounds.instance import Instance
from beamer.errors import InputError
from beamer.network.arrays import Floats


def chained(study: Sequence[str], stages: Instance) -> Instance:
    """Return the instance whose items are studies, in order of first appearance.

    study: per stage of `stages`, its study; stages of one study run in the order given, each released when the one before it
    ends, the first at `release_s`. The stage completion times of a study then add up to its makespan. Loads add up; so do the
    stages' floors, as no stage can be shorter. A link's head is the time of all stages before the first that uses it, plus
    that stage's head; its tail likewise.

    Raises `InputError` if there is not one study per stage, or weights or releases differ inside a study.
    """
    if len(study) != stages.items:
        raise InputError("study", len(study), f"one name per stage, {stages.items}")
    names = list(dict.fromkeys(study))
    members = {name: [i for i, of in enumerate(study) if of == name] for name in names}
    for name, own in members.items():
        if np.ptp(stages.weight[own]) > 0:
            raise InputError(f"weight of study {name}", stages.weight[own].tolist(), "equal weights inside a study")
        if np.ptp(stages.release_s[own]) > 0:
            raise InputError(
                f"release_s of study {name}",
                stages.release_s[own].tolist(),
                "the study's own release for each of its stages: later ones start when those before them end",
            )
    load, ready, after = stages.dense()
    length = stages.floor_s - stages.release_s
    head, tail = np.zeros((len(names), load.shape[1])), np.zeros((len(names), load.shape[1]))
    for u, own in enumerate(members.values()):
        release = stages.release_s[own[0]]
        head[u] = _first_use(length[own], ready[own] - release)
        tail[u] = _first_use(length[own][::-1], after[own][::-1])
    first = [own[0] for own in members.values()]
    row = np.array([names.index(name) for name in study], np.int64)
    gather = csr_array((np.ones(len(row)), (row, np.arange(len(row)))), shape=(len(names), len(row)))
    return Instance(stages.weight[first], gather @ stages.load, gather @ length, stages.release_s[first], head, tail)


def _first_use(length: Floats, wait: Floats) -> Floats:
    """Return, per link, the least time before its first use by stages [k] in a row; `wait` [k x P] is infinite where unused."""
    before = np.concatenate([[0.0], np.cumsum(length)[:-1]])
    used = np.isfinite(wait)
    first = used.argmax(axis=0)
    at = np.where(used.any(axis=0), wait[first, np.arange(wait.shape[1])] + before[first], 0.0)
    return np.asarray(at, np.float64)
