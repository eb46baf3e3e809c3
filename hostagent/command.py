"""`beamer-hostagent`: checks the options, and runs an agent or removes its queues."""

import asyncio
import contextlib
import logging
import math
import signal
import ssl
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO
from urllib.parse import urlsplit

import typer

from beamer.errors import InputError, PlatformError
from beamer.lazy_commands import needs
from beamer.studies.model import check_identifier
from hostagent.capabilities import effective_capabilities, missing
from hostagent.expiry.deadline import DEFAULT_DURATION_S
from hostagent.expiry.guard import remove_queues, wait_for_guard
from hostagent.expiry.state import StateDirectory
from hostagent.link.tls import client_context

if TYPE_CHECKING:
    from hostagent.agent import AgentOptions

DEFAULT_STATE = Path("/run/beamer/agents")
DEFAULT_ATTACH = Path("/run/beamer/agent.sock")
_ATTACH_HELP = """The Unix socket at which workers attach. Mount its directory into containers, not the socket itself: every
agent that starts makes a new one."""
_CONTROLLER_HELP = """Where the controller listens: ws://HOST:PORT, or wss://HOST:PORT for TLS. Several, separated by commas,
where one of them leads. Required, except with --remove."""
_CA_HELP = "Certificates of the authorities that controllers' certificates are trusted by, PEM. Default: the system's."
_MAX_CONTROLLERS = 16  # Fewer controllers agree on a leader.


log = logging.getLogger("beamer.hostagent")


def serve(
    name: Annotated[str, typer.Option(help="This agent's name in the controller's fabric.")],
    controller: Annotated[str, typer.Option(help=_CONTROLLER_HELP)] = "",
    expiry: Annotated[float, typer.Option(help="Seconds that queues stay in place without a controller.")] = DEFAULT_DURATION_S,
    state_dir: Annotated[Path, typer.Option(help="Where agents record what is theirs.", readable=False)] = DEFAULT_STATE,
    attach: Annotated[Path, typer.Option(help=_ATTACH_HELP, readable=False)] = DEFAULT_ATTACH,
    poll: Annotated[float, typer.Option(help="Seconds between polls for new connections.")] = 0.05,
    counters: Annotated[float, typer.Option(help="Seconds between counter reports.")] = 1.0,
    ca: Annotated[Path | None, typer.Option(help=_CA_HELP)] = None,
    cert: Annotated[Path | None, typer.Option(help="This agent's certificate, PEM, for controllers that ask for it.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's key, PEM, unless it is in the same file.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove this agent's queues now and end.")] = False,
) -> None:
    """Own the queues of this host's (or its switches') ports and the marks of its registered workers' sockets.

    Ending it leaves the queues in place until the time given by --expiry is over; --remove takes them down at once.
    """
    check_identifier(name, "--name")
    if remove:
        _remove(state_dir / name)
        return
    urls = parse_urls(controller)
    for option, seconds in (("--expiry", expiry), ("--poll", poll), ("--counters", counters)):
        if not (math.isfinite(seconds) and seconds > 0):
            raise InputError(option, seconds, "seconds above 0")
    tls = _tls(urls, ca, cert, key)
    # The import comes this late because many agents start at once and --remove needs none of it.
    with needs("beamer-hostagent", "agent"):
        from hostagent.agent import AgentOptions

    _run(AgentOptions(name, urls, expiry, poll, counters, tls), state_dir / name, attach)


def parse_urls(text: str) -> tuple[str, ...]:
    """Return the controllers' URLs, separated by commas. Raises `InputError` for one that is none."""
    urls = tuple(url.strip() for url in text.split(","))
    for url in urls:
        try:
            parts = urlsplit(url)
            at_all = parts.scheme in ("ws", "wss") and bool(parts.hostname) and bool(parts.port)
            good = at_all and not (parts.query or parts.fragment or parts.username or parts.password)
        except ValueError:
            good = False
        if not good:
            raise InputError("--controller", url, "ws://HOST:PORT or wss://HOST:PORT, several separated by commas")
    if len(urls) > _MAX_CONTROLLERS or len(set(urls)) < len(urls):
        raise InputError("--controller", text, f"at most {_MAX_CONTROLLERS} controllers, each once")
    return urls


def _tls(urls: tuple[str, ...], ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if any(url.startswith("wss:") for url in urls):
        return client_context(ca, cert, key)
    for option, path in (("--ca", ca), ("--cert", cert), ("--key", key)):
        if path is not None:
            raise InputError(option, str(path), "no such option without a wss:// controller")
    return None


@contextlib.contextmanager
def _working_in(path: Path) -> Iterator[None]:
    """Turn what the system refuses into bad input."""
    try:
        yield
    except OSError as error:
        raise InputError("--state-dir", str(path), f"a directory that the agent can work in ({error})") from error


def _take(state: StateDirectory) -> BinaryIO:
    held = state.take("agent")
    if held is None:
        raise InputError("--state-dir", str(state.path), "a directory that no running agent holds: end that agent first")
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


def _run(options: "AgentOptions", path: Path, attach: Path) -> None:
    with needs("beamer-hostagent", "agent"):
        from hostagent.agent import Agent
        from hostagent.queues.htb import Queues
        from hostagent.workers.attach import listening

    with contextlib.closing(Queues()) as queues:
        queues.check()
    with _working_in(path):
        state = StateDirectory(path)
        held = _take(state)
    with held, listening(attach) as attaching:
        logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {options.name} %(levelname)s %(message)s")
        logging.getLogger("websockets").setLevel(logging.WARNING)
        for warning in missing(effective_capabilities()):
            log.warning("%s", warning)
        agent = Agent(options, state, attaching)
        asyncio.run(_until_signalled(agent.run))


async def _until_signalled(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await `run` until it ends or SIGTERM or SIGINT arrives."""
    task = asyncio.create_task(run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
