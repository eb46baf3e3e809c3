"""What an agent needs of the kernel and of its own process, asked for as the agent itself asks."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from beamer.doctor.agent_socket import AgentSocket
from beamer.doctor.findings import Finding, Unseen, fault, not_checked, observe, ok, seen, warning
from beamer.errors import PlatformError
from hostagent.capabilities import effective_capabilities, missing
from hostagent.marks.nftables import nft, tables
from hostagent.queues.htb import Queues

BETTER_RELEASE = (6, 15)  # From it on TCP's time-outs can be bounded, see `hostagent.marks.timeouts`.
_OLDEST_NFTABLES = (0, 9)
_TAKEN_UP = "then start the agent again"
_MODULES = Path("/lib/modules")
_SYMBOLS = Path("/proc/kallsyms")
_U32, _U32_SYMBOL = "cls_u32", " u32_classify"


@dataclass(frozen=True)
class KernelFacts:
    """What the kernel has and allows.

    queues: why HTB trees cannot be made, None where they can. u32: whether there is a u32 classifier. nftables: its version.
    tables: why those of nftables cannot be listed. capabilities: in effect. whose: the process that has them.
    """

    release: str
    queues: PlatformError | None
    u32: bool | Unseen
    nftables: str | Unseen
    tables: PlatformError | None
    capabilities: int | Unseen
    whose: str


def read_kernel(agent: AgentSocket) -> KernelFacts:
    """Return what this kernel has, and what the agent may, or this process where none answers."""
    process = str(agent.pid) if agent.pid else "self"
    return KernelFacts(
        os.uname().release,
        _refusal(_check_queues),
        has_u32(),
        observe(lambda: nft("--version")),
        _refusal(tables),
        observe(lambda: effective_capabilities(Path(f"/proc/{process}/status"))),
        f"the agent, process {process}," if agent.pid else "this process",
    )


def has_u32(modules: Path = _MODULES, symbols: Path = _SYMBOLS) -> bool | Unseen:
    """Return whether the kernel has the u32 classifier: loaded, built in, or to be loaded when it is asked for."""
    folder = modules / os.uname().release
    listed = observe(lambda: "".join((folder / name).read_text() for name in ("modules.builtin", "modules.dep")))
    if not isinstance(listed, Unseen):
        return f"/{_U32}.ko" in listed
    known = observe(symbols.read_text)
    if not isinstance(known, Unseen) and _U32_SYMBOL in known:
        return True
    return Unseen(f"{_U32} is not loaded, and whether it could be is not known ({listed.reason})")


def judge_release(kernel: KernelFacts) -> Iterator[Finding]:
    """Yield whether the kernel can bound the time-outs of TCP."""
    match = re.match(r"(\d+)\.(\d+)", kernel.release)
    if match is None:
        yield not_checked(f"the release {kernel.release!r} has no number")
    elif (int(match[1]), int(match[2])) < BETTER_RELEASE:
        found = f"Linux {kernel.release}: a connection that starved may stand for half a minute once it is served again"
        yield warning(found, "take Linux 6.15 or newer, where this matters")
    else:
        yield ok(f"Linux {kernel.release}")


def judge_queues(kernel: KernelFacts) -> Iterator[Finding]:
    """Yield whether an agent could make its queues."""
    if kernel.queues is None:
        yield ok("HTB trees can be made")
    else:
        remedy = kernel.queues.remedy.replace(
            "load sch_htb", "modprobe sch_htb, and name it in /etc/modules-load.d/beamer.conf"
        )
        yield fault(kernel.queues.missing, f"{remedy}; {_TAKEN_UP}")


def judge_classifier(kernel: KernelFacts) -> Iterator[Finding]:
    """Yield whether queues can be picked by the DSCP of packets, as at the ports of switches."""
    if seen(kernel.u32):
        yield ok(f"{_U32} picks queues by DSCP")
    else:
        yield fault(
            f"the kernel has no {_U32}, which picks queues by DSCP", f"modprobe {_U32}, from the kernel's package of modules"
        )


def judge_nftables(kernel: KernelFacts) -> Iterator[Finding]:
    """Yield whether the agent can tell acknowledgements from data, and hold connections."""
    without = "acknowledgements keep their job's class, and a change of class may send packets twice"
    install = "apt-get install nftables (0.9 or newer), where the agent finds it by its path"
    if isinstance(kernel.nftables, Unseen):
        yield warning(f"nft does not run ({kernel.nftables.reason}): {without}", install)
        return
    version = kernel.nftables.strip()
    match = re.search(r"v(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < _OLDEST_NFTABLES:
        yield warning(f"{version} is too old: {without}", install)
    elif kernel.tables is not None:
        yield warning(f"{kernel.tables.missing}: {without}", "modprobe nf_tables, and run the agent with CAP_NET_ADMIN")
    else:
        yield ok(version)


def judge_capabilities(kernel: KernelFacts) -> Iterator[Finding]:
    """Yield what the agent does not do for want of capabilities."""
    lacking = list(missing(seen(kernel.capabilities)))
    for one in lacking:
        yield warning(
            f"{kernel.whose} has {one}", "run the agent as root, or by deploy/beamer-hostagent.service, which gives them"
        )
    if not lacking:
        yield ok(f"{kernel.whose} has what is needed to mark the sockets of others")


def _check_queues() -> None:
    with closing(Queues()) as queues:
        queues.check()


def _refusal(attempt: Callable[[], object]) -> PlatformError | None:
    try:
        attempt()
    except PlatformError as error:
        return error
    return None
