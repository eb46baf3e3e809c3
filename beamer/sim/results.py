"""The results of a run of a scenario, emulated or simulated: the same metrics by the same definitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class StageResult:
    """A stage from its registration to the end of its last job, in seconds after the scenario's start."""

    study: str
    stage: str
    start_s: float
    end_s: float

    @property
    def sct_s(self) -> float:
        """Stage completion time."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class JobResult:
    """A trial's attempt in a stage, in seconds after the scenario's start. key: `study/stage/trial`."""

    key: str
    start_s: float
    end_s: float

    @property
    def names(self) -> tuple[str, str, str]:
        """Its study's, its stage's and its trial's."""
        study, stage, trial = self.key.split("/")
        return study, stage, trial

    @property
    def jct_s(self) -> float:
        """Job completion time."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class RunResult:
    """One policy's run. utilisation: share of its capacity that each directed link carried, by `source-destination`."""

    policy: str
    stages: tuple[StageResult, ...]
    jobs: tuple[JobResult, ...]
    utilisation: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean_sct_s(self) -> float:
        """Mean stage completion time."""
        return float(np.mean([s.sct_s for s in self.stages]))

    @property
    def p95_sct_s(self) -> float:
        """95th percentile of the stage completion times."""
        return float(np.percentile([s.sct_s for s in self.stages], 95))

    @property
    def mean_jct_s(self) -> float:
        """Mean job completion time."""
        return float(np.mean([j.jct_s for j in self.jobs]))

    @property
    def makespans_s(self) -> dict[str, float]:
        """Per study, the time from its first stage's start to its last stage's end."""
        studies: dict[str, list[StageResult]] = {}
        for stage in self.stages:
            studies.setdefault(stage.study, []).append(stage)
        return {name: max(s.end_s for s in of) - min(s.start_s for s in of) for name, of in studies.items()}
