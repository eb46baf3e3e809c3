"""The controller's process: it leads or follows, serves the API meanwhile, and puts the parts together when it leads."""

import asyncio
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from beamer.clock import SteadyClock
from beamer.compilation import COMPILATION, NOTICE
from beamer.daemon_thread import in_daemon_thread
from beamer.studies.journal.batches import Batches
from controller.http.api import create_app
from controller.http.server import http_server
from controller.http.standby import ReplaceableApplication, following
from controller.identity.credentials import Credentials
from controller.journal.leadership import Lead, lead
from controller.journal.replay import resume
from controller.network.delivery import Switches
from controller.network.no_switches import NoSwitches
from controller.openflow.driver import SwitchDriver
from controller.runtime import Runtime
from controller.settings import ControllerSettings
from controller.warm_up import warm_up

NO_OPENFLOW = "none"  # in the place of the address that switches connect to
WAIT_SHOWN_S = 5.0  # So long passes between lines that say what is waited for.
CLOCK_OFF_S = 60.0  # A journal may be so far ahead of the clock: machines that take over from each other differ by less.

log = structlog.get_logger("beamer-controller")


@dataclass(frozen=True)
class Service:
    """A controller's process."""

    settings: ControllerSettings
    """What it is asked to do."""
    journal: str
    """The URL of its journal."""
    switch_address: tuple[str, int] | None
    """The address that switches connect to, None where none speaks OpenFlow and agents alone keep the order."""
    connections: int
    """The most HTTP connections that may be open at once."""
    credentials: Credentials
    """Its certificates, and the keys that those of others and tokens are checked with."""


# As of `gc.set_threshold`: the youngest 100 000 objects are searched for cycles in a few milliseconds; all objects, which by
# default keeps the event loop waiting whenever a quarter more have come, not before billions were made. Few are in a cycle.
COLLECTED = 100_000, 50, 1000
SWITCH_INTERVAL_S = 0.001  # A thread that decides or writes lets the event loop go on after so long; the default is 5 ms.


async def serve_until_stopped(service: Service, listener: socket.socket) -> None:
    """Serve until asked to stop: first as a follower where another controller leads.

    Raises `TakenError` where another one has begun to lead, `SilentError` where that cannot be known.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    served = ReplaceableApplication()
    server = http_server(served, service.settings.limits, service.connections, service.credentials.http)
    decided, stopping = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    leading = asyncio.create_task(_lead(service, served, listener, decided.set))
    await _first(leading, decided, stopping)
    if not (leading.done() or stopping.is_set()):
        serving = asyncio.create_task(server.serve([listener]))
        await _first(leading, stopping)
        server.stop()
        await serving
    leading.cancel()
    with suppress(asyncio.CancelledError):
        await leading
    log.info("stopped, rules and queues stay")


async def _first(task: asyncio.Task[None], *events: asyncio.Event) -> None:
    """Return when a task is done or an event happens."""
    waiting = {asyncio.create_task(event.wait()) for event in events}
    await asyncio.wait({task, *waiting}, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()


async def _prepare(settings: ControllerSettings) -> None:
    """Make a first decision, which compiles what is not compiled yet, so that those of jobs take milliseconds."""
    loop = asyncio.get_running_loop()
    began_s, compiled_s = loop.time(), COMPILATION.seconds
    COMPILATION.announce(partial(log.info, f"{NOTICE}; there is no service before"))
    first = in_daemon_thread(warm_up, settings.fabric, settings.policy, settings.queues, settings.mode)
    deciding = asyncio.create_task(first)
    try:
        while not (await asyncio.wait({deciding}, timeout=WAIT_SHOWN_S))[0]:
            log.info("the first decision is being prepared; there is no service before", waited_s=round(loop.time() - began_s))
        deciding.result()
    except Exception as error:  # noqa: BLE001  # The policy failed; it is asked again when this controller leads.
        log.warning("no decision could be made in advance", reason=f"{type(error).__name__}: {error}")
    finally:
        deciding.cancel()
    if compiled_s := COMPILATION.seconds - compiled_s:
        log.info("kernels compiled", took_s=round(compiled_s, 1))


async def _lead(service: Service, served: ReplaceableApplication, listener: socket.socket, decided: Callable[[], None]) -> None:
    """Lead as soon as it is possible, until cancelled. Raises as `serve_until_stopped`.

    decided: called when it leads, or follows.
    """
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    settings = service.settings
    driver: Switches = NoSwitches()
    if service.switch_address is not None:
        driver = SwitchDriver(
            settings.fabric,
            *service.switch_address,
            tls=service.credentials.switches,
            watches=True,
            codepoints=settings.codepoints,
            queues=settings.queues,
            databases=service.credentials.databases,
        )
    await driver.start()  # Switches are then connected, and wait, when the journal has been read.
    try:
        # This comes before leading: another controller, whose kernels are compiled, would be kept from it.
        await _prepare(settings)
        led = await lead(service.journal, settings.fabric, settings.watch.grace_s, settings.limits.kept, decided)
        runtime = _resumed(settings, led, driver, lost)
    except BaseException:
        await driver.stop()
        raise
    try:
        gc.freeze()  # What there is now is never searched.
        gc.set_threshold(*COLLECTED)
        await runtime.start()
        served.application = create_app(runtime, service.credentials)
        address, read = "{}:{}".format(*listener.getsockname()[:2]), led.recovered.link.number
        openflow = "{}:{}".format(*service.switch_address) if service.switch_address else NO_OPENFLOW
        log.info("serving", http=address, openflow=openflow, term=led.journal.term, events_in_journal=read)
        decided()
        await lost
    finally:
        served.application = following
        await runtime.stop()


def _resumed(settings: ControllerSettings, led: Lead, driver: Switches, lost: asyncio.Future[None]) -> Runtime:
    """Return a controller that goes on where its journal ends. lost: fails when it leads no more."""
    if (ahead_s := led.recovered.tracker.now_s - time.time()) > CLOCK_OFF_S:
        consequence = "events go on from the journal's time, tokens expire by the clock's"
        log.warning("the journal is ahead of the clock, one of them is wrong", ahead_s=round(ahead_s), consequence=consequence)
    clock = SteadyClock()
    resume(led.journal, led.recovered, settings.fabric, clock)
    batches = Batches(led.journal, lambda error: None if lost.done() else lost.set_exception(error))
    return Runtime(settings, led.recovered, batches, driver, clock)
