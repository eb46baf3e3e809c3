"""What a tracker would know of a job that another project's simulator runs: its grants in time, and its reports."""

from dataclasses import dataclass, field

from beamer.gpu.model import Costs, Grant, Job, Report, Request, Speed, Stage


@dataclass
class JobRecord:
    """A job's past, as far as a tracker would have it.

    since_s: when its grant last changed. seen_s: until when time has passed. heard_s: seconds on GPUs when it last reported.
    computed_s: how long it has computed, changes of its GPUs left out. changing_s: of the present change, still to come.
    """

    key: str
    submitted_s: float
    costs: Costs
    since_s: float
    seen_s: float
    reports: list[Report] = field(default_factory=list, init=False)
    grant: Grant | None = field(default=None, init=False)
    last: Grant | None = field(default=None, init=False)
    service_s: float = field(default=0.0, init=False)
    gpu_s: float = field(default=0.0, init=False)
    heard_s: float = field(default=0.0, init=False)
    computed_s: float = field(default=0.0, init=False)
    changing_s: float = field(default=0.0, init=False)

    @classmethod
    def seen_first(cls, key: str, submitted_s: float, costs: Costs, now: float) -> "JobRecord":
        """Return the record of a job that has had no GPUs yet, seen for the first time."""
        return cls(key, submitted_s, costs, since_s=now, seen_s=now)

    def report(self, *reports: Report) -> None:
        """Take reports that came at the time until which it has advanced."""
        self.reports += reports
        self.heard_s = self.service_s + (self.seen_s - self.since_s if self.grant else 0.0)

    def advance(self, now: float) -> None:
        """Let time pass until `now`."""
        if self.grant:
            changing_s = min(self.changing_s, now - self.seen_s)
            self.changing_s -= changing_s
            self.computed_s += now - self.seen_s - changing_s
        self.seen_s = now

    def give(self, grant: Grant | None, now: float) -> None:
        """Change what it holds; other GPUs cost it a restart."""
        if (grant.gpus if grant else ()) != (self.grant.gpus if self.grant else ()):
            if self.grant:
                self.service_s += now - self.since_s
                self.gpu_s += (now - self.since_s) * self.grant.size
            self.last, self.since_s = self.grant or self.last, now
            self.changing_s = self.costs.restart_s
        self.grant = grant

    def view(self, request: Request, speeds: tuple[Speed, ...]) -> Job:
        """Return the job as policies see it."""
        return Job(
            self.key,
            request,
            self.submitted_s,
            Stage(self.key, ""),
            tuple(self.reports),
            speeds,
            self.grant,
            self.last,
            self.since_s,
            self.service_s,
            self.gpu_s,
            self.costs,
            self.heard_s,
        )
