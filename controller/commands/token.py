"""`beamer token`: make the key that tokens are signed with, and tokens."""

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from beamer.errors import InputError
from controller.identity.tokens import DAY_S, MAX_DAYS, Claims, TokenRole, make_key, parse_role, read_key, sign_token

DEFAULT_DAYS = 30.0


def token(
    key: Annotated[Path | None, typer.Option(help="The file of the key to sign with, as the controller has it.")] = None,
    study: Annotated[str | None, typer.Option(help="The study that the token is for; '*': every study.")] = None,
    role: Annotated[str | None, typer.Option(help=f"What its bearer may do: {', '.join(TokenRole)}.")] = None,
    days: Annotated[float, typer.Option(help=f"How long it is valid, above 0 and at most {MAX_DAYS}.")] = DEFAULT_DAYS,
    new_key: Annotated[Path | None, typer.Option(help="Write a new random key to this new file instead.")] = None,
) -> None:
    """Print a token for the controller's HTTP API, or make the key that tokens are signed with.

    A token is for --study and --role; --new-key makes a key. A token is a secret: redirect it to a file (umask 077), which
    clients read by BEAMER_TOKEN_FILE.
    """
    if new_key is not None:
        for option, given in (("--key", key), ("--study", study), ("--role", role)):
            if given is not None:
                raise InputError(option, str(given), "no such option beside --new-key")
        make_key(new_key)
        return
    if key is None or study is None or role is None:
        missing = next(name for name, given in (("--key", key), ("--study", study), ("--role", role)) if given is None)
        raise InputError(missing, None, "a value: --key FILE --study NAME --role ROLE, or --new-key FILE")
    if not (math.isfinite(days) and 0 < days <= MAX_DAYS):
        raise InputError("--days", days, f"days, above 0 and at most {MAX_DAYS}")
    claims = Claims(study, parse_role(role))
    print(sign_token(read_key(key, "--key"), claims, time.time(), days * DAY_S))
