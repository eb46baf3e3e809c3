"""Installs plans on the switches: listens for them, identifies them by datapath id and keeps each at the latest plan."""

import asyncio
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog

from beamer.errors import InputError, PlatformError, first_of
from beamer.log_limit import VariedLogLimit
from beamer.network.codepoints import LOCAL, Codepoints
from beamer.network.fabric import Fabric
from beamer.network.observed_fabric import dead_cables, mismatches, remarks
from beamer.network.plan import QUEUES
from controller.address import serve_switches
from controller.event_loop.time_slices import TimeSlices
from controller.identity.certificates import require_mutual
from controller.limited_log import LimitedLog
from controller.openflow.adaptation import Adaptation
from controller.openflow.channel import (
    Channel,
    ChannelError,
    ExcessError,
    IdentityError,
    RefusedError,
)
from controller.openflow.contention import Contention
from controller.openflow.detours import Detours
from controller.openflow.flow_counts import FlowCounts
from controller.openflow.identity import check_certified, secure
from controller.openflow.reports import (
    NetworkSeen,
    PairCount,
    RulesWorkedOut,
    SwitchConnected,
    SwitchEvent,
    SwitchForm,
    SwitchLost,
)
from controller.openflow.rule_watch import WatchRation
from controller.openflow.rulebook import RuleBook
from controller.openflow.rules import JobRules, Rule, Slot
from controller.openflow.session import SwitchSession
from controller.openflow.survey import Survey
from controller.openflow.switch_target import SwitchTarget
from controller.openflow.terms import Terms
from controller.ovsdb.keeper import QueueKeeper

UNSERVED = 32  # So many connections beyond the fabric's own may have an unknown peer: few, as each may hold 128 kB unread.
ALIVE_S = 2.0  # A switch has so long to answer when another connection claims to be it; a busy one takes tenths of a second.
GATHER_S = 1.0  # A controller that begins to lead waits at most so long for all switches before it changes rules.
SERVE_AGAIN_S = 1.0  # Open vSwitch waits as long before it connects again; every session is logged.
# The same kind of end with a peer is logged again after so long: often enough for readers of the log while it goes on.
LOG_AGAIN_S = 600.0
MAX_LOGGED = 256  # So many peers of a kind are logged in that time: each further one takes an address of its own.
# A host's edge switch has so many rules for it: of 8 jobs with 128 peers each, for each peer 2 of connections and those of the
# bands MARKED, PAIR and ACKNOWLEDGE.
HOST_RULES = 8 * 128 * (2 + 3)
QUEUE_ENTRIES = 1 << 14  # A switch of a thousand ports, with logical ones, has so many queues.

log = structlog.get_logger("beamer-controller")


class SwitchDriver:
    """All switches of a fabric; every method runs on one asyncio loop.

    host, port: where switches connect; port 0 takes a free one, see `address`. tls: how switches connect, in plain text if
    there is none; it has to ask for certificates. serve_again_s: least time between the beginnings of two sessions of a switch.
    watches: whether it looks where cables lead, reports what differs from the fabric, and leads packets around dead cables.
    codepoints: of classes. queues: their number. databases: how it connects to the databases that make queues, by TLS.
    Raises `InputError` if `tls` lets anybody in.

    Before `lead` this controller follows another one. It keeps switches connected and as they are, so that none has to connect
    when it leads: Open vSwitch pauses for up to 8 s between attempts (3.1 heeds `max_backoff` on established connections
    alone).
    Until the first `install` a switch is left as it is found; after `stop` it keeps forwarding by the rules it has.
    """

    def __init__(
        self,
        fabric: Fabric,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        serve_again_s: float = SERVE_AGAIN_S,
        watches: bool = False,
        codepoints: Codepoints = LOCAL,
        queues: int = QUEUES,
        databases: ssl.SSLContext | None = None,
    ) -> None:
        if tls is not None:
            require_mutual(tls)
        self._tls = tls
        self._fabric = fabric
        self._listen_on = host, port
        self._lead: tuple[Callable[[SwitchEvent], None], Terms] | None = None  # As of `lead`.
        self._leading = asyncio.Event()
        self._turns = TimeSlices()
        self._book = RuleBook(fabric, codepoints)
        self._adaptation = Adaptation(fabric, codepoints, self._turns, self._set_target, self._report_form)
        self._wanted: tuple[int, Sequence[JobRules]] | None = None  # generation and jobs that have not been worked on
        self._working: asyncio.Task[None] | None = None
        self._name_of = {switch.dpid: switch.name for switch in fabric.switches}
        self._final = {switch.name: FlowCounts() for switch in fabric.switches}
        self._served: dict[str, Channel] = {}  # The one connection to each switch.
        self._sessions: dict[str, SwitchSession] = {}  # Each keeps a switch at its target; none while this controller follows.
        self._contention = {switch.name: Contention(switch.name, serve_again_s, ALIVE_S) for switch in fabric.switches}
        self._connections: set[asyncio.Task[None]] = set()
        # Connections that are not served yet, oldest first, with their addresses.
        self._unserved: dict[asyncio.Task[None], str] = {}
        self._most_entries = {name: _most_entries(fabric, name, self._adaptation.size(name)) for name in fabric.switch}
        self._limited = LimitedLog()
        self._ration = WatchRation()
        self._endings = VariedLogLimit(MAX_LOGGED, LOG_AGAIN_S)
        self._detours = Detours(fabric, self._turns, self._replace)
        self._survey = Survey(fabric, self._turns, self._look_soon, self._settled, codepoints, queues) if watches else None
        self._keeper = QueueKeeper(fabric, queues, databases, self._look_soon)
        self._looks = False  # It is set while `_look` is due.
        self._gathered, self._gather_until = asyncio.Event(), 0.0
        self._seen = NetworkSeen(unread=fabric.with_databases)
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    @property
    def names(self) -> Sequence[str]:
        """The switches of the fabric."""
        return tuple(self._name_of.values())

    @property
    def address(self) -> tuple[str, int]:
        """Where switches connect, once started."""
        if self._server is None:
            return self._listen_on
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def lead(self, on_event: Callable[[SwitchEvent], None], terms: Terms) -> None:
        """Have the next `start` take switches over from the controller that led before.

        on_event: called on the loop. terms: this leadership's; switches refuse those of earlier ones.
        """
        self._lead = on_event, terms

    async def start(self) -> None:
        """Listen for switches, if it does not already, and serve them if it leads.

        Raises `PlatformError` if the address is not available.
        """
        if self._server is None:
            self._server = await serve_switches(*self._listen_on, self._connected)
        if self._lead is not None:
            self._leading.set()
            if self._survey is not None and not self._tasks:
                loop = asyncio.get_running_loop()
                self._gather_until = loop.time() + GATHER_S
                running = self._survey.run(), self._detours.run(), self._keeper.run()
                self._tasks = [loop.create_task(one) for one in running]

    async def stop(self) -> None:
        """Stop listening and drop every connection; the switches keep their rules."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = self._connections | ({self._working} if self._working else set()) | {*self._tasks} | self._adaptation.tasks
        self._tasks = []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for contention in self._contention.values():
            await contention.stop()

    def install(self, generation: int, jobs: Sequence[JobRules]) -> None:
        """Make every switch hold the rules and meters of `jobs`, as soon as it is connected; only differences are sent.

        A switch that is still busy with an earlier generation skips to the latest, and so does what is worked out for all.
        """
        self._wanted = generation, jobs
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work_out())

    async def _work_out(self) -> None:
        """Work out what generations change on each switch, the latest one whenever one is done."""
        try:
            while self._wanted is not None:
                (generation, jobs), self._wanted = self._wanted, None
                change = await self._turns.do(self._book.change(jobs))
                meters = self._book.meters()
                place = self._turns.begin()
                for name in self._adaptation.names:
                    await self._turns.granted(place)
                    await self._adaptation.give(name, generation, change[name], meters[name])
                if self._lead is not None:
                    self._lead[0](RulesWorkedOut(generation))
        except Exception as error:  # noqa: BLE001  Nobody awaits this task.
            fault = {"message": "a fault while the rules of a plan were worked out", "exception": error}
            asyncio.get_running_loop().call_exception_handler(fault)
        finally:
            self._working = None

    def _look_soon(self) -> None:
        """Have `_look` called in the next turn of the event loop: much may become known in one, and faults end nothing else."""
        if not self._looks:
            self._looks = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Report what is known of the network, if that is something else than before, and lead packets accordingly."""
        self._looks = False
        assert self._survey is not None
        assert self._lead is not None
        keeper = self._keeper
        observation = replace(self._survey.observation(), databases=keeper.faults, datapaths=keeper.datapath_types)
        found = mismatches(self._fabric, observation)
        dead, odd = dead_cables(self._fabric, found, observation.silent), remarks(self._fabric, observation)
        seen = NetworkSeen(found, dead, frozenset(observation.ports), odd, keeper.unread | self._survey.unused)
        if seen != self._seen:
            self._seen = seen
            self._detours.avoid(seen.dead)
            self._lead[0](seen)

    async def _settled(self) -> None:
        """Wait until rules lead around the cables that are dead, at the beginning for all switches, as any may know of one."""
        assert self._survey is not None
        if self._survey.switches == len(self._name_of):
            self._gathered.set()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._gather_until):
                await self._gathered.wait()
        await asyncio.sleep(0)  # What has just become known is looked at in the next turn.
        await self._detours.settled()

    def _replace(self, rules: Mapping[str, Mapping[Slot, Rule]]) -> list[asyncio.Future[None]]:
        """Replace rules that no plan changes, by switch; return what is done once the connected switches have them."""
        having = [name for name, changed in rules.items() if self._adaptation.replace(name, changed)]
        return [session.at_target() for name in having if (session := self._sessions.get(name))]

    def _set_target(self, name: str, target: SwitchTarget | None, changed: Iterable[Slot] | None) -> None:
        """Have a switch, if it is connected, hold a target that differs from the one before in some slots, None for any."""
        self._bound_answers(name)
        if session := self._sessions.get(name):
            session.set_target(target, changed)

    def _report_form(self, form: SwitchForm) -> None:
        assert self._lead is not None  # Before, no switch is asked what it can hold.
        self._lead[0](form)

    async def counters(self) -> tuple[PairCount, ...]:
        """Return what each host pair has sent in each class; of a switch that does not answer, only what is final."""
        found: list[PairCount] = []
        for name, final in self._final.items():
            live = FlowCounts()
            if (session := self._sessions.get(name)) and self._adaptation.counts(name):
                try:
                    live, final = await session.count()
                except (ChannelError, RefusedError) as error:
                    self._limited.warning("switch gave no counters", name, str(error), switch=name, reason=str(error))
            found += self._pair_counts(name, live, final=False)
            found += self._pair_counts(name, final, final=True)
        return tuple(found)

    def _pair_counts(self, switch: str, counts: FlowCounts, *, final: bool) -> Iterator[PairCount]:
        hosts = self._fabric.hosts
        for (pair, klass, marked), (sent_bytes, sent_packets) in counts.by_pair.items():
            if max(pair.src, pair.dst) < len(hosts):  # rules of an earlier, larger fabric may still be there
                src, dst = hosts[pair.src].name, hosts[pair.dst].name
                yield PairCount(switch, pair.job_seq, src, dst, klass, marked, sent_bytes, sent_packets, final)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a connection's callback always runs in one
        address = str((writer.get_extra_info("peername") or ("unknown",))[0])
        self._make_room()
        self._connections.add(task)
        self._unserved[task] = address
        channel, name = Channel(reader, writer, lambda message: None, self._turns), None
        try:
            await secure(writer, self._tls)
            dpid = await channel.handshake()
            name = self._identify(dpid, writer)
            await self._serve(name, channel, task)
        except* (ChannelError, RefusedError) as group:
            self._log_end(address, first_of(group), name)
        except* asyncio.CancelledError:
            pass  # `stop` or a lack of room for another connection ends it; asyncio's server would report that as a fault.
        except* Exception as group:  # noqa: BLE001  # An early Python 3.11 reports it only once the task is collected.
            fault = {"message": f"a fault while {name or address} was served", "exception": group}
            asyncio.get_running_loop().call_exception_handler(fault)
        finally:
            self._connections.discard(task)
            self._unserved.pop(task, None)
            channel.close()

    def _make_room(self) -> None:
        """Drop the connections that have gone unserved for longest, if there are too many.

        Not the newest: a switch says who it is within milliseconds, so the oldest are those that never will.
        """
        # All switches may connect at once, and again before their old connections are found dead.
        most = UNSERVED + 2 * len(self._name_of)
        while len(self._unserved) >= most:
            oldest, address = next(iter(self._unserved.items()))
            del self._unserved[oldest]
            oldest.cancel()
            self._log_end(address, ExcessError(f"more than {most} connections that are not served; the oldest is dropped"))

    def _identify(self, dpid: int, writer: asyncio.StreamWriter) -> str:
        """Return the switch that a peer is, by what it says and what its certificate allows.

        Raises `CertificateError` and `IdentityError`.
        """
        check_certified(dpid, writer, self._tls)
        if (name := self._name_of.get(dpid)) is None:
            raise IdentityError(f"{dpid:016x}: the topology names no such switch")
        return name

    async def _serve(self, name: str, channel: Channel, task: asyncio.Task[None]) -> None:
        """Serve a switch until it is gone, once no other connection to it is served. It is read while it waits for that."""
        self._unserved.pop(task, None)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(channel.serve())
            tasks.create_task(self._serve_in_turn(name, channel, task))

    async def _serve_in_turn(self, name: str, channel: Channel, task: asyncio.Task[None]) -> None:
        async with self._contention[name].turn(channel, task):
            self._served[name] = channel
            self._bound_answers(name)
            try:
                await self._keep_at_target(name, channel)
            finally:
                del self._served[name]
                self._sessions.pop(name, None)

    def _bound_answers(self, name: str) -> None:
        """Bound what a switch may answer, if it is served: never below what it is given, whatever a site's limits are."""
        if served := self._served.get(name):
            served.most_entries = max(self._most_entries[name], 2 * self._adaptation.size(name))

    async def _keep_at_target(self, name: str, channel: Channel) -> None:
        """Keep a switch at its target from the moment on when this controller leads."""
        await self._leading.wait()
        assert self._lead is not None
        on_event, terms = self._lead
        outdo = partial(self._outdo, name, terms)
        session = SwitchSession(
            name,
            channel,
            self._final[name],
            on_event,
            terms.term,
            outdo,
            self._turns,
            self._limited,
            self._survey,
            self._ration,
            self._adaptation.calls(name),
        )
        self._sessions[name] = session
        session.set_target(self._adaptation.target(name), ())
        on_event(SwitchConnected(name))
        try:
            await session.run()
        finally:
            on_event(SwitchLost(name))
            if self._survey is not None:
                self._survey.left(name)

    async def _outdo(self, switch: str, terms: Terms, seen: int) -> int:
        """Return a later term than one that a switch has obeyed. Raises `RefusedError` if this controller leads no more."""
        own = terms.term
        try:
            raised = await terms.raise_term(seen + 1)
        except (PlatformError, InputError) as error:
            raise RefusedError(f"it has obeyed term {seen}, and this controller's is {own}; {error}") from error
        what = "switch had obeyed another journal's leader; the term is raised"
        self._limited.warning(what, switch, switch=switch, seen=seen, term=raised)
        return raised

    def _log_end(self, address: str, reason: Exception, switch: str | None = None) -> None:
        """Log that a connection has ended: once in a while per peer and kind of reason."""
        kind = type(reason).__name__
        left_out = self._endings.left_out(kind)
        if self._endings.take(kind, (address, switch)):
            log.warning("switch connection ended", peer=address, switch=switch, reason=str(reason), others_alike=left_out)


def _most_entries(fabric: Fabric, switch: str, static: int) -> int:
    """Return a bound on the entries of a switch's answer: twice what it may hold, as the old stays while the new is added."""
    hosts = sum(edge == switch for edge in fabric.edge_of.values())
    return max(2 * (static + hosts * HOST_RULES), QUEUE_ENTRIES)
