"""A plain simulated training job: every iteration computes, synchronises phase after phase, and waits for both."""

from collections.abc import Callable, Sequence

from beamer.network.job import JobSpec
from tests.support.reference.agenda import Agenda
from tests.support.reference.network import Flow, ReferenceNetwork


class ReferenceJob:
    """One job from its first iteration to its last; `on_iteration` is called with the number complete after each."""

    def __init__(
        self,
        key: str,
        spec: JobSpec,
        phases: Sequence[Sequence[Flow]],
        agenda: Agenda,
        network: ReferenceNetwork,
        on_iteration: Callable[[str, int], None],
    ) -> None:
        self._key = key
        self._spec = spec
        self._phases = phases
        self._agenda = agenda
        self._network = network
        self._on_iteration = on_iteration
        self._done = 0
        self._phase = 0
        self._awaited = 0

    def iterate(self) -> None:
        """Start the next iteration."""
        self._phase = 0
        self._awaited = 2
        self._agenda.after(self._spec.compute_s, self._arrive)
        self._agenda.after((1 - self._spec.overlap) * self._spec.compute_s, self._synchronise)

    def phase_complete(self) -> None:
        """Take notice that the job's coflow has arrived; release the next one."""
        self._phase += 1
        self._synchronise()

    def _synchronise(self) -> None:
        while self._phase < len(self._phases):
            if self._network.release(self._key, self._phases[self._phase]):
                return
            self._phase += 1
        self._arrive()

    def _arrive(self) -> None:
        self._awaited -= 1
        if self._awaited:
            return
        self._done += 1
        if self._done < self._spec.iterations:
            self.iterate()
        self._on_iteration(self._key, self._done)
