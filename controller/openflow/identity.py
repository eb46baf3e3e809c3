"""Who a switch is: by its certificate where connections are secure, else by its word."""

import asyncio
import ssl

from beamer.errors import InputError
from controller.identity.certificates import switch_of
from controller.openflow.channel import HANDSHAKE_S, CertificateError


async def secure(writer: asyncio.StreamWriter, tls: ssl.SSLContext | None) -> None:
    """Agree on TLS, if that is asked for. To be awaited before anything is read. Raises `CertificateError`."""
    if tls is not None:
        try:
            await writer.start_tls(tls, ssl_handshake_timeout=HANDSHAKE_S)
        except OSError as error:  # `ssl.SSLError` and time-outs are `OSError`s.
            raise CertificateError(f"no mutual TLS: {error}") from error


def check_certified(dpid: int, writer: asyncio.StreamWriter, tls: ssl.SSLContext | None) -> None:
    """Raise `CertificateError` where a peer's certificate is not of the datapath id that it says."""
    if tls is not None:
        try:
            allowed = switch_of(writer.get_extra_info("peercert"))
        except InputError as error:
            raise CertificateError(f"{dpid:016x}: {error}") from error
        if allowed != dpid:
            raise CertificateError(f"{dpid:016x}: its certificate is for {allowed:016x}")
