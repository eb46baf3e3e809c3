"""`beamer certs`: make the certificates of a deployment, and later those that it lacks, or new ones."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from beamer.network.fabric import Switch
from beamer.network.fabric_file import parse_datapath_id, read_fabric
from beamer.studies.model import check_identifier
from controller.identity.authority import AUTHORITY, AUTHORITY_DAYS, Authority, Subject, files_of
from controller.identity.certificates import CONTROLLER_URI, agent_uri, switch_uri

DEFAULT_DAYS = 365
_DIRECTORY_HELP = "Where certificates and keys go; the authority in it is kept."


def certs(
    directory: Annotated[Path, typer.Argument(help=_DIRECTORY_HELP, metavar="DIR")],
    fabric: Annotated[Path | None, typer.Option(help="The network, as beamer-controller has it.")] = None,
    agent: Annotated[list[str] | None, typer.Option(help="The name of an agent beside the network's; may be repeated.")] = None,
    switch: Annotated[
        list[str] | None,
        typer.Option(help="A switch beside the network's, NAME=DPID, the datapath id as it prints it; may be repeated."),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="A DNS name of the controller; may be repeated.")] = None,
    ip: Annotated[list[str] | None, typer.Option(help="An IP address of the controller; may be repeated.")] = None,
    days: Annotated[int, typer.Option(help="How long new certificates are valid.")] = DEFAULT_DAYS,
    renew: Annotated[bool, typer.Option("--renew", help="Make new keys and certificates for those that have some.")] = False,
) -> None:
    """Make certificates for a controller, its agents and its switches.

    Before a network's file is there, agents and switches are given by name, so that `beamer fabric discover` can let them in.
    The authority that signs them is made once and always kept. Other keys and certificates that are there are kept unless
    --renew is given. Keys are readable by their owner alone.
    """
    if not 1 <= days <= AUTHORITY_DAYS:
        raise InputError("--days", days, f"1 to {AUTHORITY_DAYS}")
    if not (name or ip):
        raise InputError("--name", None, "a DNS name of the controller, or an address by --ip: others find it by these")
    if not (fabric or agent or switch):
        raise InputError("--fabric", None, "the network's file, or --agent and --switch where there is none yet")
    agents, switches = set(agent or ()), dict[str, int]()
    of_file, serving = tuple[Switch, ...](), frozenset[str]()
    if fabric is not None:
        network = read_fabric(fabric)
        agents |= network.agents
        of_file = network.switches
        serving = frozenset(one.name for one in of_file if (one.ovsdb or "").startswith("ssl:"))
    for one, dpid in (*((known.name, known.dpid) for known in of_file), *map(_named_switch, switch or ())):
        if switches.setdefault(one, dpid) != dpid:
            raise InputError(
                "--switch", f"{one}={dpid:016x}", f"one datapath id of {one}, which has {switches[one]:016x} already"
            )
    wanted = list(subjects(agents, switches, tuple(name or ()), tuple(ip or ()), serving))
    for subject in wanted:
        list(subject.alternative_names())
    now = datetime.now(UTC)
    authority = _authority(directory, now)
    valid = {subject: None if renew else authority.kept(subject) for subject in wanted}
    expires = now + timedelta(days=days)
    if expires > authority.expires:
        raise InputError("--days", days, f"no more than the authority is valid, until {authority.expires:%Y-%m-%d}")
    print(f"{authority.certificate}  valid until {authority.expires:%Y-%m-%d}")
    for subject, until in valid.items():
        if until is None:
            print(f"{authority.issue(subject, now, expires).certificate}  made, valid until {expires:%Y-%m-%d}")
        else:
            print(f"{files_of(directory, subject.name).certificate}  kept, valid until {until:%Y-%m-%d}")


def subjects(
    agents: Iterable[str],
    switches: Mapping[str, int],
    dns: tuple[str, ...],
    ips: tuple[str, ...],
    serving: Collection[str] = (),
) -> Iterator[Subject]:
    """Yield everybody of a network who has a certificate, the controller by its names and addresses first.

    switches: their datapath ids by name. serving: those to whose databases the controller connects by TLS.
    Raises `InputError` for a name that cannot be a file's and an identity's.
    """
    yield Subject("controller", (CONTROLLER_URI,), dns, ips, bool(serving))
    for agent in sorted(agents):
        yield Subject(f"agent-{check_identifier(agent, 'agent')}", (agent_uri(agent),))
    for switch, dpid in switches.items():
        yield Subject(f"switch-{check_identifier(switch, 'switch')}", (switch_uri(dpid),), has_both_parts=switch in serving)


def _named_switch(text: str) -> tuple[str, int]:
    name, _, dpid = text.partition("=")
    if not name or not dpid:
        raise InputError("--switch", text, "NAME=DPID, such as l1=0000000000000010")
    try:
        number = parse_datapath_id(dpid)
    except InputError as error:
        raise InputError("--switch", text, f"after NAME=: {error.expected}") from error
    if not 1 <= number < 2**64:
        raise InputError("--switch", text, "after NAME= a datapath id from 1 to 64 bits")
    return name, number


def _authority(directory: Path, now: datetime) -> Authority:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("directory", str(directory), f"a directory that can be made ({error.strerror})") from error
    if files_of(directory, AUTHORITY).key.exists():
        return Authority.load(directory)
    return Authority.make(directory, now)
