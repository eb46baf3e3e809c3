"""A search whose GPUs a controller grants: what happens to it is reported, and what the controller grants is carried out here.

    journal -> events, numbered, sent again until they are durable there -> controller
    controller -> what holds for the search -> `ControllerDecider` -> journal -> the engine

Without a controller what runs goes on, and nothing further is started.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from beamer.errors import InputError
from beamer.gpu.decider import Take, Upcoming, next_generation
from beamer.gpu.devices import Devices
from beamer.gpu.events import Allocated, NodesSeen, RanksSeen, TrialReported
from beamer.gpu.ledger import GpuLedger
from beamer.gpu.link import EngineLink
from beamer.studies.events import Event, StudyRegistered
from beamer.studies.tracker import Tracker

OWN_RUN = StudyRegistered.run  # A search that shares its nodes with no other has this run.
RETRY_S = 0.5  # After a failure, grants are carried out again so much later.
FIRST_ANSWER_S = 5.0  # Before anything runs, the controller has so long to say whether it serves the search.
TELL_S = 10.0  # The controller has so long to confirm.

log = logging.getLogger("beamer.gpu")


class ControllerDecider:
    """Carry out what a controller grants. Nothing is started ahead: another search may come next."""

    looks_ahead = False
    prepared: Mapping[str, Devices] = MappingProxyType({})

    def __init__(self, tracker: Tracker, ledger: GpuLedger, link: EngineLink) -> None:
        self._tracker = tracker
        self._ledger = ledger
        self._link = link

    @property
    def is_due(self) -> bool:
        """Whether something else holds than was decided on last."""
        held = self._link.held
        return held is not None and held != self._link.acted_upon

    def decide(self, now: float, take: Take) -> float | None:
        """Have `take` take in what the controller grants to trials that want GPUs, if that is new."""
        held = self._link.held
        if held is None:
            return None
        wanting = {job.key for job in self._ledger.submitted(self._tracker)}
        nodes = self._ledger.cluster.node
        grants = {
            key: grant
            for key, grant in held.assignment.grants.items()
            # The controller will hear of the nodes that are down here.
            if key in wanting and all(node in nodes for node, _ in grant.gpus)
        }
        devices = {key: held.assignment.devices[key] for key in grants}
        known = self._ledger.devices
        if grants != self._ledger.granted or any(known.get(key) != devices[key] for key in grants):
            try:
                take(Allocated(now, held.assignment.policy, next_generation(self._ledger), None, grants, devices))
            except InputError as error:
                log.warning("what the controller grants cannot be carried out: %s", error)
                return now + RETRY_S
        self._link.acted_upon = held
        return None

    def upcoming(self, now: float, ahead: Collection[str]) -> Upcoming:
        """Return nothing."""
        return {}

    def revoke(self, now: float, take: Take) -> None:
        """Have `take` take their GPUs from all trials."""
        last = self._ledger.decision
        take(Allocated(now, last.policy if last else "", next_generation(self._ledger), None, {}, {}))


def by_controller(link: EngineLink) -> Callable[[Tracker, GpuLedger], ControllerDecider]:
    """Return what makes a `ControllerDecider` for what is known of a search."""
    return lambda tracker, ledger: ControllerDecider(tracker, ledger, link)


def events_to_report(past: Iterable[Event]) -> list[Event]:
    """Return of a journal's events those that a controller may not know yet, in order.

    Nodes and processes of before are of no use, but the latest are; speeds and costs are measured again.
    """
    told = list(past)
    latest = {_subject(event): number for number, event in enumerate(told) if isinstance(event, NodesSeen | RanksSeen)}
    return [
        event
        for number, event in enumerate(told)
        if (latest[_subject(event)] == number if isinstance(event, NodesSeen | RanksSeen) else _is_news(event))
    ]


def _subject(event: NodesSeen | RanksSeen) -> str:
    return event.trial if isinstance(event, RanksSeen) else ""


def _is_news(event: Event) -> bool:
    return not isinstance(event, TrialReported) or event.report is not None


def run_of(past: Iterable[Event], controller: str, where: str) -> str:
    """Return the run that a journal's events begin with, or else a new one.

    controller: the URL that the search names, "" for none. where: the search is kept, for messages. Raises `InputError` for a
    search that was begun without a controller and names one, or the reverse.
    """
    begun = next((event.run for event in past if isinstance(event, StudyRegistered)), None)
    if begun is None:
        return uuid.uuid4().hex if controller else OWN_RUN
    if (begun == OWN_RUN) != (not controller):
        how = "without a controller: none" if begun == OWN_RUN else "with a controller: the same one"
        raise InputError("controller", controller or "none", f"as it was begun in {where}, {how}")
    return begun


def begin(link: EngineLink, past: Iterable[Event], controller: str) -> None:
    """Connect a search, and have all that has happened reported. controller: as the user named it, for messages.

    past: the journal's events. Raises `InputError` where the controller refuses the search within `FIRST_ANSWER_S`; one that
    does not answer is tried further.
    """
    for event in events_to_report(past):
        link.offer(event)
    link.start()
    link.wait(FIRST_ANSWER_S)
    if link.refusal:
        raise InputError("controller", controller, f"one that serves the search; this one refuses: {link.refusal}")


def leave(link: EngineLink) -> bool:
    """Say that no process of a search runs, and return whether the controller has confirmed that and all events."""
    return link.flush(TELL_S) and link.leave(TELL_S)
