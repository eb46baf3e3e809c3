"""Mutual TLS of an agent with its controller: what verifies the controller, and what the agent authenticates itself by."""

import ssl
from pathlib import Path

from beamer.errors import InputError


def client_context(ca: Path | None = None, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Return what verifies a controller's certificate and its host name, TLS 1.2 or newer.

    ca: certificates of the authorities to trust, PEM; None: the system's. cert, key: the agent's own, PEM, to show where it is
    asked for. Raises `InputError` for a file that is none of these.
    """
    try:
        # This context verifies certificate and host name.
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
    except OSError as error:  # `ssl.SSLError` is an `OSError`.
        raise InputError("--ca", str(ca), f"a file of certificates in PEM ({_reason(error)})") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if key is not None and cert is None:
        raise InputError("--cert", None, "the certificate of the key, as there is a key")
    if cert is not None:
        _present(context, cert, key)
    return context


def _present(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    for field, path in (("--cert", cert), ("--key", key)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise InputError(field, str(path), f"a file in PEM that can be read ({_reason(error)})") from error
    try:
        # Without a password OpenSSL would ask at the terminal.
        context.load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:
        expected = "a certificate and its key in PEM, without a passphrase"
        raise InputError("--cert, --key", f"{cert}, {key or cert}", f"{expected} ({_reason(error)})") from error


def connection_failure(error: BaseException, tls: bool) -> str:
    """Return what an attempt to connect failed of, in words. tls: whether it was to speak it."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is refused: {error.verify_message}"
        case ssl.SSLError() if error.reason == "WRONG_VERSION_NUMBER":
            return "it does not speak TLS: ws:// instead of wss://?"
        case ssl.SSLError() if "ALERT" in (error.reason or ""):
            return f"it refuses the agent's certificate or version of TLS: {error.reason}"
        case ssl.SSLError():
            return f"TLS fails: {error.reason or error}"
        case _ if tls and (isinstance(error, ConnectionResetError) or isinstance(error.__cause__, EOFError)):
            # In TLS 1.3 a client has finished its part by the time that its certificate is refused.
            return "it closes without an answer: it may ask for a certificate of the agent's own, or speak no TLS"
        case _:
            return str(error) or type(error).__name__


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
