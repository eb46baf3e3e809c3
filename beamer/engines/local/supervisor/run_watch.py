"""What the ranks of one run on a node print, how long they take for it, and whether they could have their port."""

from collections.abc import Iterable
from dataclasses import replace

from beamer.engines.local.pattern import MAX_SHOWN, SlowPatternError
from beamer.engines.local.supervisor.devices import says_out_of_memory
from beamer.engines.local.supervisor.lines import PrintedLine, RefusedLine
from beamer.engines.local.supervisor.messages import Launch, RunStatus
from beamer.engines.local.supervisor.ports import is_taken, says_taken
from beamer.engines.local.supervisor.progress import Meter, NodeReport
from beamer.engines.local.supervisor.reader import ProgressReader
from beamer.engines.local.supervisor.run_clock import RunClock
from beamer.errors import InputError, shortened


class RunWatch:
    """Follows the run of a launch. now: monotonic time, in every method.

    port: that rank 0 listens on here, 0 if it is on another node. has_news: whether `status` has changed with the last line.
    slow: the pattern that took too long, with the line; no further line is read then.
    """

    def __init__(self, launch: Launch, now: float) -> None:
        spec = launch.spec
        scale = launch.batch_size / spec.batch_size
        self._meter = Meter(launch.progress, now, scale, spec.batch_size, spec.every, launch.gap_s, spec.iterations)
        self._clock = RunClock(now, launch.ran_s, launch.quiet_s)
        self._reader = ProgressReader(spec.progress)
        self.port = launch.master_port if 0 in launch.ranks else 0
        self._suspended_s = now
        self._is_ahead = launch.holds
        self._refused = ""
        self._printed = 0  # lines
        self.has_news = False
        self.slow = ""

    def suspend(self, now: float) -> None:
        """Count no time from now on."""
        self._suspended_s = now
        self._clock.suspend(now)

    def resume(self, now: float) -> None:
        """Go on counting."""
        self._meter.pause(now - self._suspended_s)
        self._clock.resume(now)

    def hold(self, now: float) -> None:
        """Count no time from now on, and none of what was before, as the ranks started ahead."""
        self._is_ahead = False
        self._meter.hold(now)
        self._clock.restart(now)
        self.suspend(now)

    def hear(self, now: float) -> None:
        """Take in that a rank has printed something."""
        self._clock.hear(now)

    def line(self, printed: PrintedLine, now: float) -> NodeReport | None:
        """Return the report that is due for a line, None if none is."""
        self.has_news = False
        self._printed += 1
        if self.slow:
            return None
        try:
            line = self._reader.read(printed)
        except RefusedLine as error:
            # Other JSON that a program prints, too, is no report.
            if error.is_meant and (error.names_step or not self._meter.has_reported):
                self._meter.refuse(error.step, error.in_samples)
                self.has_news = True
            if error.is_meant or not self._meter.has_reported:
                self._refuse(printed, error)
            return None
        except SlowPatternError as error:
            self.slow = str(error)
            return None
        if line is None or not line.has_loss:
            return None
        self.has_news = True
        if self._is_ahead:  # It is held at this line.
            self._meter.hold(now)
        try:
            return self._meter.line(line, now)
        except InputError as error:
            self._meter.refuse(None, line.in_samples)
            self._refuse(printed, error)
            return None

    def _refuse(self, printed: PrintedLine, error: InputError) -> None:
        """Remember the first line that was refused."""
        if not self._refused:
            self._refused = f"{printed.shown!r} is no progress: {error}"
            self.has_news = True

    @property
    def has_computed(self) -> bool:
        """Whether the ranks have reported more than was known before their launch."""
        return self._meter.has_advanced

    def last_report(self, now: float) -> NodeReport | None:
        """Return the report of a job that has come to its end, and whose last line was refused; None for any other."""
        return self._meter.unread(now)

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
        taken = bool(self.port) and last_s is None and (is_taken(self.port) or says_taken(words))
        tail_s = run.tail_s if last_s is None else now - last_s
        lacked = says_out_of_memory(words)
        return replace(self.status(run, now), port_taken=taken, tail_s=tail_s, out_of_memory=lacked)

    def unread(self, last_printed: Iterable[str]) -> str:
        """Return what is to be said of a run that has ended well and of which no line was read; "" where one was.

        last_printed: the last lines of its ranks.
        """
        if self._meter.has_reported:
            return ""
        if not self._printed:
            return "it printed nothing, so that nothing is known of its progress"
        lines = [f"  {shortened(line.strip(), MAX_SHOWN)}" for line in last_printed]
        said = f"none of its {self._printed} lines was read as progress: {self._reader.expected}; the last of them:"
        return "\n".join((said, *lines))
