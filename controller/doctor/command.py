"""`beamer doctor controller`: what would keep a controller from starting, and from being reached."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from beamer.doctor.certificates import CertificateFile, judge_certificates, read_certificates
from beamer.doctor.findings import Check, Finding, Unseen, examine, fault, not_checked, observe, ok, seen
from beamer.doctor.report import report
from beamer.errors import BeamerError, InputError, PlatformError
from beamer.inspect.options import JsonFlag
from beamer.network.fabric import Fabric
from beamer.network.fabric_file import read_fabric
from beamer.ports import HTTP_PORT
from beamer.studies.journal.location import check_no_secret
from controller.doctor.listening import AddressFacts, judge_addresses, judge_exposure, judge_time, try_address
from controller.doctor.storage import JournalFacts, KernelCache, judge_journal, judge_kernels, read_journal, read_kernels
from controller.identity.credentials import NO_CREDENTIALS, Credentials, check_exposure, read_credentials
from controller.service import NO_OPENFLOW

_PATIENCE_S = 5.0
_OPTION = "As beamer-controller is given it."


@dataclass(frozen=True)
class ControllerOptions:
    """The options of a controller that could not start without them, as it is given them; None: not given."""

    fabric: Path | None = None
    journal: str | None = None
    http: str = f"127.0.0.1:{HTTP_PORT}"
    openflow: str = "127.0.0.1:6653"
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    token_key: Path | None = None
    insecure: bool = False


@dataclass(frozen=True)
class ControllerFacts:
    """What was observed on a controller's machine.

    fabric: the network, or why its file cannot be used. credentials: why they cannot be used, None where they can. exposure:
    what is reached without them. now: Unix time.
    """

    fabric: Fabric | InputError | Unseen
    journal: JournalFacts | Unseen
    kernels: KernelCache
    addresses: tuple[AddressFacts, ...]
    credentials: BeamerError | None
    exposure: InputError | Unseen | None
    certificates: tuple[CertificateFile, ...]
    has_tokens: bool
    synchronised: bool | Unseen
    now: float


def controller(
    fabric: Annotated[Path | None, typer.Option(help=_OPTION)] = None,
    journal: Annotated[str | None, typer.Option(help=_OPTION)] = None,
    http: Annotated[str, typer.Option(help=_OPTION)] = ControllerOptions.http,
    openflow: Annotated[str, typer.Option(help=_OPTION)] = ControllerOptions.openflow,
    tls_cert: Annotated[Path | None, typer.Option(help=_OPTION)] = None,
    tls_key: Annotated[Path | None, typer.Option(help=_OPTION)] = None,
    tls_ca: Annotated[Path | None, typer.Option(help=_OPTION)] = None,
    token_key: Annotated[Path | None, typer.Option(help=_OPTION)] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help=_OPTION)] = False,
    as_json: JsonFlag = False,
) -> None:
    """Examine a controller's machine: network's file, journal, addresses, compiled kernels, certificates, token key.

    Run it as the controller's user, with its options. Ends with 1 where there is a fault, and with 2 where nothing could be
    examined.
    """
    if journal is not None:
        check_no_secret(journal, "--journal")
    options = ControllerOptions(fabric, journal, http, openflow, tls_cert, tls_key, tls_ca, token_key, insecure)
    report("controller", examine(CHECKS, gather(options)), as_json)


def gather(options: ControllerOptions) -> ControllerFacts:
    """Observe this machine. Raises `InputError` for an address that is none."""
    addresses = [("--http", options.http), ("--openflow", options.openflow)]
    credentials, refused = _credentials(options)
    return ControllerFacts(
        _fabric(options.fabric),
        Unseen("--journal is not given") if options.journal is None else read_journal(options.journal),
        read_kernels(),
        tuple(try_address(option, address) for option, address in addresses if address != NO_OPENFLOW),
        refused,
        Unseen("the credentials cannot be used") if refused else _exposed(options, credentials),
        (
            *read_certificates("--tls-cert", options.tls_cert),
            *read_certificates("--tls-ca", options.tls_ca, signs=True),
        ),
        options.token_key is not None,
        observe(_is_synchronised),
        time.time(),
    )


def judge_fabric(facts: ControllerFacts) -> Iterator[Finding]:
    """Yield whether the network's file can be read."""
    match facts.fabric:
        case Unseen(reason):
            yield not_checked(reason)
        case InputError() as error:
            yield fault(f"{error.field}: got {error.value!r}", f"give {error.expected}; beamer fabric show FILE checks it")
        case fabric:
            yield ok(f"{fabric.name} has {len(fabric.hosts)} hosts and {len(fabric.switches)} switches")


def judge_credentials(facts: ControllerFacts) -> Iterator[Finding]:
    """Yield whether certificate, key and authority belong together and are valid, and the token key is a secret."""
    match facts.credentials:
        case InputError() as error:
            yield fault(f"{error.field}: got {error.value!r}", f"give {error.expected}")
        case PlatformError() as error:
            yield fault(error.missing, error.remedy)
        case _ if facts.certificates or facts.has_tokens:
            yield ok("certificate, key, authority and token key can be used, as far as they are given")
        case _:
            yield not_checked("none of --tls-cert, --tls-key, --tls-ca and --token-key is given")
    yield from judge_certificates(facts.certificates, datetime.fromtimestamp(facts.now, UTC))


CHECKS: Mapping[str, Check[ControllerFacts]] = {
    "network": judge_fabric,
    "journal": lambda facts: judge_journal(seen(facts.journal)),
    "addresses": lambda facts: judge_addresses(facts.addresses),
    "exposure": lambda facts: judge_exposure(seen(facts.exposure)),
    "credentials": judge_credentials,
    "compiled kernels": lambda facts: judge_kernels(facts.kernels),
    "clock": lambda facts: judge_time(seen(facts.synchronised)),
}
"""What is examined on a controller's machine, by the name that its findings have."""


def _fabric(path: Path | None) -> Fabric | InputError | Unseen:
    if path is None:
        return Unseen("--fabric is not given")
    try:
        return read_fabric(path)
    except InputError as error:
        return error


def _credentials(options: ControllerOptions) -> tuple[Credentials, BeamerError | None]:
    try:
        return read_credentials(options.tls_cert, options.tls_key, options.tls_ca, options.token_key), None
    except (InputError, PlatformError) as error:
        return NO_CREDENTIALS, error


def _exposed(options: ControllerOptions, credentials: Credentials) -> InputError | Unseen | None:
    if options.insecure:
        return Unseen("--insecure lets everybody in who reaches the controller")
    try:
        check_exposure(options.http, None if options.openflow == NO_OPENFLOW else options.openflow, credentials)
    except InputError as error:
        return error
    return None


def _is_synchronised() -> bool:
    command = ("timedatectl", "show", "--property=NTPSynchronized", "--value")
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE_S).stdout.strip()
    if said not in ("yes", "no"):
        raise InputError("timedatectl", said, "yes or no")
    return said == "yes"
