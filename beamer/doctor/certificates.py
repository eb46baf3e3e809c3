"""Until when certificates are valid, read with the standard library alone: agents' machines have no package for it.

Of a certificate only the validity is read (RFC 5280, section 4.1), by its encoding in DER (ITU-T X.690). Whether a certificate,
its key and its authority belong together is left to OpenSSL.
"""

import re
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from beamer.doctor.findings import Finding, fault, ok, warning
from beamer.errors import InputError

SOON = timedelta(days=30)
"""A certificate that expires within this time is named: renewing takes an operator on several machines."""
RENEW = (
    "where certificates are made: beamer certs DIR --fabric FILE --name NAME --renew; copy the new files here,"
    " and restart what reads them"
)
RENEW_AUTHORITY = (
    "where certificates are made: beamer certs NEW-DIR --fabric FILE --name NAME; copy all its files, on all machines"
)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_BEFORE_VALIDITY = 3  # serial number, algorithm and issuer
_LONG_LENGTH = 0x80
_CENTURY_FROM = 50  # A two-digit year from here on is of the 20th century (RFC 5280, section 4.1.2.5.1).
_MAX_BYTES = 1 << 20  # A file of authorities of a whole system has a third of this.


@dataclass(frozen=True)
class Validity:
    """From when until when a certificate is valid."""

    begins: datetime
    ends: datetime


@dataclass(frozen=True)
class CertificateFile:
    """A file of certificates that an option named.

    validities: of each certificate. refused: why the file cannot be used, empty where it can. signs: whether it holds
    authorities, of which one suffices.
    """

    option: str
    path: str
    validities: tuple[Validity, ...] = ()
    refused: str = ""
    signs: bool = False


def read_certificates(option: str, path: Path | str | None, signs: bool = False) -> list[CertificateFile]:
    """Return what is in a file of certificates, in PEM; nothing where no file was named."""
    if path is None:
        return []
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MAX_BYTES).decode("ascii", "replace")
        found = tuple(validity_of(ssl.PEM_cert_to_DER_cert(one)) for one in _PEM.findall(text))
    except OSError as error:
        return [CertificateFile(option, str(path), refused=error.strerror or str(error), signs=signs)]
    except ValueError as error:
        return [CertificateFile(option, str(path), refused=str(error), signs=signs)]
    return [CertificateFile(option, str(path), found, "" if found else "no certificate in PEM is in it", signs)]


def judge_certificates(files: Iterable[CertificateFile], now: datetime) -> Iterator[Finding]:
    """Yield, for each file, whether its certificates can be read and are valid now, and for how long."""
    for file in files:
        named = f"{file.path} ({file.option})"
        fix = RENEW_AUTHORITY if file.signs else RENEW
        if file.refused:
            yield fault(f"{named}: {file.refused}", f"give {file.option} a file of certificates that this user can read")
            continue
        ends = (max if file.signs else min)(one.ends for one in file.validities)
        begins = (min if file.signs else max)(one.begins for one in file.validities)
        if begins > now:
            yield fault(f"{named} is valid only from {begins:%Y-%m-%d %H:%M} UTC", "set this machine's clock")
        elif ends <= now:
            yield fault(f"{named} has expired on {ends:%Y-%m-%d %H:%M} UTC", fix)
        elif ends - now < SOON:
            yield warning(f"{named} expires on {ends:%Y-%m-%d %H:%M} UTC", fix)
        else:
            yield ok(f"{named} is valid until {ends:%Y-%m-%d}")


def validity_of(der: bytes) -> Validity:
    """Return the validity of a certificate in DER. Raises `InputError` for what is none."""
    try:
        at = _inside(der, _inside(der, 0))
        if der[at] == _VERSION:
            at = _after(der, at)
        for _ in range(_BEFORE_VALIDITY):
            at = _after(der, at)
        begins_at = _inside(der, at)
        return Validity(_time(der, begins_at), _time(der, _after(der, begins_at)))
    except (IndexError, ValueError) as error:
        raise InputError("certificate", der[:16].hex(), "a certificate in DER") from error


def _element(der: bytes, at: int) -> tuple[int, int]:
    """Return where the content of an element begins and ends."""
    length, begins = der[at + 1], at + 2
    if length & _LONG_LENGTH:
        count = length & ~_LONG_LENGTH
        length, begins = int.from_bytes(der[begins : begins + count]), begins + count
    if begins + length > len(der):
        raise IndexError
    return begins, begins + length


def _inside(der: bytes, at: int) -> int:
    if der[at] != _SEQUENCE:
        raise ValueError("no sequence")
    return _element(der, at)[0]


def _after(der: bytes, at: int) -> int:
    return _element(der, at)[1]


def _time(der: bytes, at: int) -> datetime:
    begins, ends = _element(der, at)
    text = der[begins:ends].decode("ascii")
    if der[at] == _UTC_TIME:
        text = f"{'19' if int(text[:2]) >= _CENTURY_FROM else '20'}{text}"
    elif der[at] != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
