"""Iterating jobs, in the stages that make up the items: the input of the barrier bound."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from beamer.bounds.instance import Instance
from beamer.bounds.study import chained
from beamer.errors import InputError
from beamer.network.arrays import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class IteratingJobs:
    """J jobs of n items on P links; an item is complete when its last stage is.

    weight [n]: of the items, above 0. item [J], stage [J]: numbers from 0; jobs of one item and stage run side by side, the
    stages of an item one after another in order of their numbers. iterations [J]: from 1. lead_s [J]: of each iteration,
    before its coflow is released: (1 - overlap) c. period_s [J]: least time of an iteration alone, compute and all phases of
    its synchronisation. load [J x P]: seconds that one iteration needs of the link alone. release_s [n]: of the items, 0 where
    not given.

    Raises `InputError` for a shape that does not fit, a value that is negative or not finite, a period shorter than lead plus
    largest load, an item or stage that has no job.
    """

    weight: Floats
    item: Ints
    stage: Ints
    iterations: Ints
    lead_s: Floats
    period_s: Floats
    load: Floats
    release_s: Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        jobs = len(self.item)
        if not len(self.release_s):
            object.__setattr__(self, "release_s", np.zeros(len(self.weight)))
        if len(self.release_s) != len(self.weight):
            raise InputError("jobs.release_s", len(self.release_s), f"one time per item, {len(self.weight)}")
        for name in ("stage", "iterations", "lead_s", "period_s", "load"):
            values = np.asarray(getattr(self, name))
            if values.ndim != (2 if name == "load" else 1) or len(values) != jobs:
                raise InputError(f"jobs.{name}", values.shape, f"one entry per job, {jobs}")
            if not np.all(np.isfinite(values) & (values >= 0)):
                raise InputError(f"jobs.{name}", float(values.min()), "finite numbers from 0 on")
        if jobs and self.iterations.min() < 1:
            raise InputError("jobs.iterations", int(self.iterations.min()), "at least one iteration")
        if not np.array_equal(np.unique(self.item), np.arange(len(self.weight))):
            raise InputError(
                "jobs.item", np.unique(self.item).tolist(), f"numbers 0 to {len(self.weight) - 1}, each with a job"
            )
        short = self.lead_s + self.load.max(axis=1, initial=0.0) > self.period_s * (1 + 1e-9)
        if short.any():
            at = int(np.argmax(short))
            raise InputError(f"jobs.period_s[{at}]", float(self.period_s[at]), "at least lead_s plus the largest load")
        for i in range(len(self.weight)):
            stages = np.unique(self.stage[self.item == i])
            if not np.array_equal(stages, np.arange(len(stages))):
                raise InputError("jobs.stage", stages.tolist(), f"stages of item {i} numbered from 0, each with a job")

    @cached_property
    def length_s(self) -> Floats:
        """The least time [J] that each job takes alone, seconds."""
        return np.asarray(self.iterations * self.period_s, np.float64)

    @cached_property
    def tight(self) -> Bools:
        """Per job and link, whether an iteration alone is its lead and then nothing but this link's load."""
        return (self.load > 0) & (self.lead_s[:, None] + self.load >= self.period_s[:, None] * (1 - 1e-9))

    @cached_property
    def stages(self) -> tuple[tuple[str, ...], Instance]:
        """The item's name of each stage and the stages as an instance, items in order and stages in order."""
        keys = sorted(set(zip(self.item.tolist(), self.stage.tolist(), strict=True)))
        own = [np.flatnonzero((self.item == i) & (self.stage == k)) for i, k in keys]
        used = self.load > 0
        head = [np.where(used[of], self.lead_s[of, None], np.inf).min(axis=0) for of in own]
        instance = Instance(
            self.weight[[i for i, _ in keys]],
            np.array([self.iterations[of] @ self.load[of] for of in own]).reshape(len(own), self.load.shape[1]),
            np.array([self.length_s[of].max() for of in own]),
            self.release_s[[i for i, _ in keys]],
            np.array([np.where(np.isfinite(h), h, 0.0) for h in head]).reshape(len(own), self.load.shape[1]),
        )
        return tuple(str(i) for i, _ in keys), instance

    @cached_property
    def instance(self) -> Instance:
        """The items as an instance: loads, critical paths, heads and tails of the chained stages."""
        return chained(*self.stages)

    @cached_property
    def ready_s(self) -> Floats:
        """The earliest time [J] at which each job can use a link: the stages before its own, and its first lead."""
        names, stages = self.stages
        length = stages.floor_s - stages.release_s
        start: dict[tuple[int, int], float] = {}
        for item in range(len(self.weight)):
            own = [i for i, name in enumerate(names) if name == str(item)]
            before = np.cumsum(length[own]) - length[own]
            start.update({(item, k): float(self.release_s[item] + before[k]) for k in range(len(own))})
        keys = zip(self.item.tolist(), self.stage.tolist(), strict=True)
        return np.array([start[key] for key in keys]) + self.lead_s
