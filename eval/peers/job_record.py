"""What a tracker would know of a job that another project's simulator runs: its grants in time, and its reports."""

from dataclasses import dataclass, field

from beamer.gpu.model import Costs, Grant, Job, Report, Request, Speed, Stage


@dataclass
class JobRecord:
    """A job's past, as far as a tracker would have it.

    computed_s: how long it has computed, changes of its GPUs left out. changing_s: of the present change, still to come.
    """

    key: str
    submitted_s: float
    costs: Costs
    reports: list[Report] = field(default_factory=list)
    grant: Grant | None = None
    last: Grant | None = None
    since_s: float = 0.0
    service_s: float = 0.0
    gpu_s: float = 0.0
    computed_s: float = 0.0
    changing_s: float = 0.0
    seen_s: float = 0.0

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
        )
