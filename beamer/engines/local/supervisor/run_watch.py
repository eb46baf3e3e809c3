"""What the ranks of one run on a node print, how long they take for it, and whether they could have their port."""

from dataclasses import replace

from beamer.engines.local.supervisor.lines import MOST_SHOWN, is_meant_as_progress, parse, parser
from beamer.engines.local.supervisor.messages import Launch, RunStatus
from beamer.engines.local.supervisor.ports import is_taken, says_taken
from beamer.engines.local.supervisor.progress import Meter, NodeReport
from beamer.engines.local.supervisor.run_clock import RunClock
from beamer.errors import InputError, shortened


class RunWatch:
    """Follows the run of a launch. now: monotonic time, in every method."""

    def __init__(self, launch: Launch, now: float) -> None:
        spec = launch.spec
        scale = launch.batch_size / spec.batch_size
        self._meter = Meter(launch.progress, now, scale, spec.batch_size, spec.every, launch.gap_s, spec.iterations)
        self._clock = RunClock(now, launch.ran_s, launch.quiet_s)
        self._pattern = parser(spec.progress)
        self._port = launch.master_port if 0 in launch.ranks else 0
        self._suspended_s = now
        self._refused = ""
        self.has_news = False

    @property
    def port(self) -> int:
        """The port that rank 0 listens on here, 0 if it is on another node."""
        return self._port

    def suspend(self, now: float) -> None:
        """Count no time from now on."""
        self._suspended_s = now
        self._clock.suspend(now)

    def resume(self, now: float) -> None:
        """Go on counting."""
        self._meter.pause(now - self._suspended_s)
        self._clock.resume(now)

    def hear(self, now: float) -> None:
        """Take in that a rank has printed something."""
        self._clock.hear(now)

    def line(self, text: str, now: float) -> NodeReport | None:
        """Return the report that is due for a line, None if none is. `has_news` says whether `status` has changed."""
        self.has_news = False
        try:
            line = parse(text, self._pattern)
            if line is None:
                return None
            report = self._meter.line(line, now)
        except InputError as error:
            # other JSON that a program prints, too, is none of it
            if not self._refused and (not self._meter.has_reported or is_meant_as_progress(text)):
                self._refused = f"{shortened(text.strip(), MOST_SHOWN)!r} is no progress: {error}"
                self.has_news = True
            return None
        self.has_news = True
        return report

    def status(self, run: RunStatus, now: float) -> RunStatus:
        """Return the status of the run with what has been measured until now."""
        meter = self._meter
        return replace(
            run, progress=meter.progress, restart_s=meter.restart_s, iteration_s=meter.iteration_s, missing=meter.missing,
            refused=self._refused, ran_s=self._clock.ran_s(now), quiet_s=self._clock.quiet_s(now), paused_s=meter.paused_s,
        )  # fmt: skip

    def final(self, run: RunStatus, words: str, now: float) -> RunStatus:
        """Return the status of the run, which has ended. words: the last that its ranks wrote to their standard errors."""
        last_s = self._meter.last_s
        taken = bool(self._port) and last_s is None and (is_taken(self._port) or says_taken(words))
        tail_s = run.tail_s if last_s is None else now - last_s
        return replace(self.status(run, now), port_taken=taken, tail_s=tail_s)
