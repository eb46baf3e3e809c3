"""How a client authenticates to the controller: by a token, from its caller or from the environment, that is never shown."""

import re
from collections.abc import Mapping
from pathlib import Path

from beamer.errors import InputError

TOKEN_VARIABLE = "BEAMER_TOKEN"
TOKEN_FILE_VARIABLE = "BEAMER_TOKEN_FILE"
CA_VARIABLE = "BEAMER_CA"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,4096}=*")  # RFC 6750, section 2.1; its length is bounded to fit a header
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


def _read(path: str) -> str:
    try:
        return Path(path).read_text("ascii").strip() or "(empty)"
    except (OSError, ValueError) as error:
        raise InputError(TOKEN_FILE_VARIABLE, path, f"a file that holds a token ({type(error).__name__})") from None
