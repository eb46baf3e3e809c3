"""How a client authenticates to the controller: by a token, from its caller or from the environment, that is never shown."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from beamer.client.urls import controller_urls
from beamer.errors import InputError

TOKEN_VARIABLE = "BEAMER_TOKEN"
TOKEN_FILE_VARIABLE = "BEAMER_TOKEN_FILE"
CA_VARIABLE = "BEAMER_CA"
INSECURE_VARIABLE = "BEAMER_INSECURE"
# The form is that of RFC 6750, section 2.1; the length is bounded to fit a header.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,4096}=*")
_HIDDEN = "(a token that is not shown)"
_EXPECTED = "letters, digits and '._~+/-', at most 4096"


def authorization(token: str | None, environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the headers that prove who asks, none without a token.

    token: None: what the environment holds or names a file of. Raises `InputError` without showing the token.
    """
    field, given = ("token", token) if token is not None else (TOKEN_VARIABLE, environment.get(TOKEN_VARIABLE))
    path = environment.get(TOKEN_FILE_VARIABLE)
    if not given and token is None and path:
        field, given = TOKEN_FILE_VARIABLE, _read(path)
    if not given and token is None:
        return ()
    if not given or not _TOKEN.fullmatch(given):
        raise InputError(field, _HIDDEN, _EXPECTED)
    return (("Authorization", f"Bearer {given}"),)


@dataclass(frozen=True)
class ControllerAccess:
    """How controllers are reached.

    urls: of each. headers: that prove who asks. ca: the file of their authority, None: those that the system trusts.
    """

    urls: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    ca: str | None


def controller_access(
    urls: str, environment: Mapping[str, str], token: str | None = None, ca: str | None = None
) -> ControllerAccess:
    """Return how controllers are reached. urls: with commas. token, ca: None: the environment's. Raises `InputError`."""
    listed, headers = controller_urls(urls), authorization(token, environment)
    if headers:
        check_exposure(listed, environment, "url" if token is not None else f"url beside {TOKEN_VARIABLE}")
    return ControllerAccess(tuple(listed), headers, ca or environment.get(CA_VARIABLE) or None)


def without_token(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for processes whose controller asks for no token, and is to see none."""
    return {name: value for name, value in environment.items() if name not in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE)}


def check_exposure(urls: Iterable[str], environment: Mapping[str, str], field: str = "url") -> None:
    """Raise `InputError` for a URL to which a token would travel in the clear, over more than this machine's loopback.

    field: as which it is refused.
    """
    if environment.get(INSECURE_VARIABLE) == "1":
        return
    for url in urls:
        try:
            parts = urlsplit(url)
            exposed = parts.scheme == "http" and not _is_loopback(parts.hostname or "")
        except ValueError:
            continue  # The URL is refused elsewhere.
        if exposed:
            expected = f"https:// beside a token, which anybody on the way could read and use, or {INSECURE_VARIABLE}=1"
            raise InputError(field, url, expected)


def _is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name or its address, without asking anybody."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: str) -> str:
    try:
        return Path(path).read_text("ascii").strip() or "(empty)"
    except (OSError, ValueError) as error:
        raise InputError(TOKEN_FILE_VARIABLE, path, f"a file that holds a token ({type(error).__name__})") from None
