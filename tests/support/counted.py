"""Trials whose agents count bytes, for the tests of what is learnt of trials."""

from random import Random

from beamer.network.estimates import Sourced
from beamer.network.events import Measured
from beamer.network.forecasts import Forecast, Point, no_forecast
from beamer.network.ledger import NetworkLedger
from beamer.network.policies import network_policy
from beamer.network.protocol import WorkerBytes
from beamer.network.trial_measurements import TrialMeasurements
from beamer.studies.events import (
    AttemptStarted,
    Event,
    Progressed,
    StudyRegistered,
    TrialRegistered,
    decode,
    encode,
)
from beamer.studies.model import UNKNOWN, Profile, Worker
from beamer.studies.tracker import Tracker
from beamer.testing.fabrics import star

FABRIC = star(4)
PAIR = (Worker(0, "h1"), Worker(1, "h2"))
MB = 1_000_000


class Site:
    """A tracker with what it has taken in, and the meters of its trials."""

    def __init__(self, forecast: Forecast = no_forecast) -> None:
        self.ledger = NetworkLedger(FABRIC, forecast)
        self.tracker = Tracker(self.ledger)
        self.meters = TrialMeasurements(self.ledger, self.tracker)
        self.taken: list[Event] = []

    def take(self, *events: Event) -> None:
        for event in events:
            if self.tracker.check(event):
                self.taken.append(event)
                self.tracker.apply(event)

    def start(self, trial: str, profile: Profile = UNKNOWN, attempt: str = "1", workers: tuple[Worker, ...] = PAIR) -> str:
        study, name = trial.split("/")
        if study not in self.tracker.studies:
            self.take(StudyRegistered(0.0, study, barriers=False))
        now_s = self.tracker.now_s
        self.take(TrialRegistered(now_s, study, name), AttemptStarted(now_s, trial, attempt, workers, profile))
        return trial

    def run(self, sent: dict[str, int], iteration_s: float = 1.0, lasts: int = 40) -> None:
        """Let trials run side by side. sent: what each one's synchronisation sends per rank, counted every second."""
        began_s = self.tracker.now_s
        begun = {trial: self.tracker.trial(trial).done for trial in sent}
        for second in range(lasts):
            at_s = began_s + second
            for trial, size in sent.items():
                steps = int(second / iteration_s)
                attempt = self.tracker.trial(trial).attempt
                assert attempt is not None
                for worker in attempt.workers:
                    count = WorkerBytes(job=trial, rank=worker.rank, sent_bytes=steps * size)
                    self.take(*self.meters.counted(FABRIC.host[worker.host].agent, (count,), at_s))
                self.take(Progressed(at_s + 1e-3, trial, begun[trial] + steps))
                self.take(*self.meters.progressed(trial, at_s + 1e-3))

    def sync_bytes(self, trial: str) -> Sourced:
        attempt = self.tracker.trial(trial).attempt
        assert attempt is not None
        return self.ledger.profiles.of(trial, attempt, self.meters.measurement(trial)).sync_bytes

    def compute_s(self, trial: str) -> Sourced:
        attempt = self.tracker.trial(trial).attempt
        assert attempt is not None
        return self.ledger.profiles.of(trial, attempt, self.meters.measurement(trial)).compute_s

    def remaining(self, trial: str) -> Sourced:
        record = self.tracker.trial(trial)
        return self.ledger.remaining(self.tracker.study(record.study), record)

    def order(self, policy: str) -> list[str]:
        chosen = network_policy(policy)
        snapshot = self.ledger.snapshot(self.tracker)
        return [key for tier in chosen.order(chosen.initial(), snapshot, 0.0, Random(0))[1] for key in tier.jobs]

    def measurements(self) -> list[Measured]:
        return [event for event in self.taken if isinstance(event, Measured)]

    def replayed(self) -> "Site":
        other = Site(self.ledger.forecasts.forecast)
        for event in self.taken:
            kind, content = encode(event)
            other.take(decode(kind, content))
        return other


def forecast(losses: tuple[Point, ...]) -> float | None:
    """Return the step at which a loss of 1/step is 1/100 less what it is now; of a level one, None."""
    return 200.0 if len(losses) >= 4 and losses[-1][1] < losses[0][1] else None
