"""`beamer-hostagent`: checks the options, and runs an agent or removes its queues."""

import asyncio
import contextlib
import logging
import math
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from urllib.parse import urlsplit

import typer

from beamer.errors import InputError, PlatformError
from beamer.lazy_commands import needs
from beamer.studies.model import check_name
from hostagent.guard import remove_queues, wait_for_guard
from hostagent.lease import DEFAULT_DURATION_S
from hostagent.state import StateDirectory

DEFAULT_STATE = Path("/run/beamer/agents")
DEFAULT_ATTACH = Path("/run/beamer/agent.sock")
_ATTACH_HELP = """The Unix socket at which workers attach. Mount its directory into containers, not the socket itself: every
agent that starts makes a new one."""


def serve(
    name: Annotated[str, typer.Option(help="This agent's name in the controller's fabric.")],
    controller: Annotated[str, typer.Option(help="Where the controller listens: ws://HOST:PORT.")] = "",
    expiry: Annotated[float, typer.Option(help="Seconds that queues stay in place without a controller.")] = DEFAULT_DURATION_S,
    state_dir: Annotated[Path, typer.Option(help="Where agents record what is theirs.", readable=False)] = DEFAULT_STATE,
    attach: Annotated[Path, typer.Option(help=_ATTACH_HELP, readable=False)] = DEFAULT_ATTACH,
    poll: Annotated[float, typer.Option(help="Seconds between polls for new connections.")] = 0.05,
    counters: Annotated[float, typer.Option(help="Seconds between counter reports.")] = 1.0,
    remove: Annotated[bool, typer.Option("--remove", help="Remove this agent's queues now and end.")] = False,
) -> None:
    """Own the queues of this host's (or its switches') ports and the marks of its registered workers' sockets.

    Ending it leaves the queues in place until the time given by --expiry is over; --remove takes them down at once.
    """
    check_name(name, "name")
    if remove:
        _check_root()
        _remove(state_dir / name)
        return
    _check_url(controller)
    for option, seconds in (("expiry", expiry), ("poll", poll), ("counters", counters)):
        if not (math.isfinite(seconds) and seconds > 0):
            raise InputError(option, seconds, "seconds above 0")
    _check_root()
    _run(name, controller, expiry, state_dir / name, attach, poll, counters)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "ws" and bool(parts.hostname) and parts.port is not None
    except ValueError:
        good = False
    if not good:
        raise InputError("controller", url, "ws://HOST:PORT")


def _check_root() -> None:
    if os.geteuid() != 0:
        raise PlatformError("not running as root", "run as root: queues and other processes' sockets need it")


@contextlib.contextmanager
def _working_in(path: Path) -> Iterator[None]:
    """Turn what the system refuses into bad input."""
    try:
        yield
    except OSError as error:
        raise InputError("state-dir", str(path), f"a directory that the agent can work in ({error})") from error


def _take(state: StateDirectory) -> BinaryIO:
    held = state.take("agent")
    if held is None:
        raise InputError("state-dir", str(state.path), "a directory that no running agent holds: end that agent first")
    return held


def _remove(path: Path) -> None:
    with _working_in(path):
        if not path.is_dir():
            return
        state = StateDirectory(path)
        with _take(state), state.changing():
            remove_queues(state)
        if not wait_for_guard(state):
            raise PlatformError(f"the guard of {path} does not end", "end the process whose id is in guard.lock there")


def _run(name: str, controller: str, expiry: float, path: Path, attach: Path, poll: float, counters: float) -> None:
    # Imported this late because many agents start at once and --remove needs none of it.
    with needs("beamer-hostagent", "agent"):
        from hostagent.agent import Agent, AgentOptions
        from hostagent.attach import listening
        from hostagent.probe import check_platform

    check_platform()
    with _working_in(path):
        state = StateDirectory(path)
        held = _take(state)
    with held, listening(attach) as attaching:
        logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {name} %(levelname)s %(message)s")
        logging.getLogger("websockets").setLevel(logging.WARNING)
        agent = Agent(AgentOptions(name, controller, expiry, poll, counters), state, attaching)
        asyncio.run(_until_signalled(agent.run))


async def _until_signalled(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await `run` until it ends or SIGTERM or SIGINT arrives."""
    task = asyncio.create_task(run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
