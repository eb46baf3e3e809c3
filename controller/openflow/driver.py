"""Installs plans on the switches: listens for them, identifies them by datapath id and keeps each at the latest plan."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

import structlog

from beamer.errors import PlatformError
from beamer.network.fabric import Fabric
from controller.openflow.channel import Channel, ChannelError, RefusedError
from controller.openflow.reports import PairCount, SwitchConnected, SwitchEvent, SwitchLost
from controller.openflow.rules import JobRules, job_meters, job_rules, merged, static_rules
from controller.openflow.session import FlowCounts, SwitchSession, SwitchTarget

log = structlog.get_logger("beamer-controller")


class SwitchDriver:
    """All switches of a fabric; every method runs on one asyncio loop.

    host, port: where switches connect; port 0 takes a free one, see `address`. on_event: called on the loop.
    Until the first `install` a switch is left as it is found; after `stop` it keeps forwarding by the rules it has.
    """

    def __init__(
        self,
        fabric: Fabric,
        host: str,
        port: int,
        on_event: Callable[[SwitchEvent], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fabric = fabric
        self._listen_on = host, port
        self._on_event = on_event
        self._clock = clock
        self._static = static_rules(fabric)
        self._name_of = {switch.dpid: switch.name for switch in fabric.switches}
        self._targets: dict[str, SwitchTarget] = {}
        self._final = {switch.name: FlowCounts() for switch in fabric.switches}
        self._sessions: dict[str, SwitchSession] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where switches connect, once started."""
        if self._server is None:
            return self._listen_on
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self) -> None:
        """Listen for switches. Raises `PlatformError` if the address is not available."""
        host, port = self._listen_on
        try:
            self._server = await asyncio.start_server(self._connected, host, port)
        except OSError as error:
            raise PlatformError(
                f"cannot listen for switches on {host}:{port} ({error.strerror})", "give another address with --openflow"
            ) from error

    async def stop(self) -> None:
        """Stop listening and drop every connection; the switches keep their rules."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def install(self, generation: int, jobs: Sequence[JobRules]) -> None:
        """Make every switch hold the rules and meters of `jobs`, as soon as it is connected; only differences are sent.

        A switch that is still busy with an earlier generation skips to the latest.
        """
        meters = job_meters(self._fabric, jobs)
        for name, rules in merged(self._static, job_rules(self._fabric, jobs)).items():
            self._targets[name] = SwitchTarget(generation, rules, meters[name])
            if name in self._sessions:
                self._sessions[name].set_target(self._targets[name])

    async def counters(self) -> tuple[PairCount, ...]:
        """Return what each host pair has sent in each class; of a switch that does not answer, only what is final."""
        found: list[PairCount] = []
        for name, final in self._final.items():
            live = FlowCounts()
            if name in self._sessions:
                try:
                    live, final = await self._sessions[name].count()
                except (ChannelError, RefusedError) as error:
                    log.warning("switch gave no counters", switch=name, reason=str(error))
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
        self._connections.add(task)
        channel = Channel(reader, writer, lambda message: None)
        try:
            dpid = await channel.handshake()
            if name := self._name_of.get(dpid):
                await self._serve(name, channel, task)
            else:
                log.error("refused a switch that the topology does not name", dpid=f"{dpid:016x}", peer=channel.peer)
        except* (ChannelError, RefusedError) as group:
            log.warning("switch connection ended", peer=channel.peer, reason=str(group.exceptions[0]))
        except* asyncio.CancelledError:
            pass  # by `stop`, or by the same switch connecting again; asyncio's server would report it as a fault
        finally:
            self._connections.discard(task)
            channel.close()

    async def _serve(self, name: str, channel: Channel, task: asyncio.Task[None]) -> None:
        if stale := self._serving.get(name):
            # It connected again before its old connection was found dead.
            stale.cancel()
            await asyncio.wait({stale})
        session = SwitchSession(name, channel, self._final[name], self._on_event, self._clock)
        self._serving[name], self._sessions[name] = task, session
        self._on_event(SwitchConnected(name))
        if name in self._targets:
            session.set_target(self._targets[name])
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(channel.serve())
                tasks.create_task(session.run())
        finally:
            del self._serving[name], self._sessions[name]
            self._on_event(SwitchLost(name))
