"""The first decision of a process, made ahead: it loads compiled kernels, which takes tenths of a second, or compiles them.

A controller makes it before it leads or follows, so that what it decides first when it serves takes milliseconds. An emulation
makes it before a run: compiling, once after an installation, takes up to a minute, in which jobs would send without a plan.
"""

import itertools
from random import Random
from typing import Any

from beamer.network.decide import decide
from beamer.network.fabric import Fabric
from beamer.network.ledger import NetworkLedger
from beamer.network.plan_modes import PlanMode
from beamer.network.policies import NetworkPolicy
from beamer.studies.events import AttemptStarted, StageRegistered, StudyRegistered, TargetSet, TrialRegistered
from beamer.studies.model import Profile, Worker, trial_key
from beamer.studies.tracker import Tracker

TRIALS = 3
_STUDY, _STAGE = "study", "stage"


def warm_up(fabric: Fabric, policy: NetworkPolicy[Any], queues: int, mode: PlanMode | None) -> None:
    """Decide on a few trials that nobody has registered, and forget it."""
    network = NetworkLedger(fabric)
    tracker = Tracker(network)
    tracker.apply(StudyRegistered(0.0, _STUDY))
    tracker.apply(StageRegistered(0.0, _STUDY, _STAGE))
    for number, (src, dst) in enumerate(itertools.islice(itertools.permutations(fabric.hosts, 2), TRIALS)):
        key = trial_key(_STUDY, name := f"trial{number}")
        tracker.apply(TrialRegistered(0.0, _STUDY, name))
        tracker.apply(TargetSet(0.0, key, 1 + number, _STAGE))
        tracker.apply(AttemptStarted(0.0, key, "1", (Worker(0, src.name), Worker(1, dst.name)), Profile(10**6)))
    decide(policy, queues, mode)(policy.initial(), network.snapshot(tracker), 1.0, Random(0))
