"""Who may do what over HTTP: signed tokens (JWT, RFC 7519), each for one study or all of them, in one role, for some days.

    {"iss": "beamer", "aud": "beamer-controller", "study": "resnet", "role": "trainer", "iat": ..., "exp": ...}

The algorithm is HS256 and no other, so that no token can choose a weaker one: who makes tokens and who checks them is the same
operator, so that a pair of keys would protect nothing further.
"""

import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import jwt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from beamer.errors import BeamerError, InputError, nearest
from beamer.studies.model import check_name
from controller.identity.secret_files import create_secret, read_secret

EVERY_STUDY = "*"
MAX_CHARACTERS = 4096  # Tokens of this controller have about 250 characters, and clients send none above this limit.
MAX_DAYS = 3650  # A token is valid for at most so many days: one that is to be valid for ever is never renewed.
DAY_S = 86_400
_ALGORITHM = "HS256"
_KEY_BYTES = 32  # The key has as many bytes as the hash (RFC 7518, section 3.2).
_FOREIGN_CLAIMS = "the token's claims are not those of this controller's tokens"
_ISSUER, _AUDIENCE = "beamer", "beamer-controller"


class TokenRole(StrEnum):
    """What the bearer of a token is to the controller."""

    TRAINER = "trainer"
    READER = "reader"
    OPERATOR = "operator"


class Permission(StrEnum):
    """What a request may be permitted to do."""

    READ_STUDY = "read the study"
    WRITE_STUDY = "write to the study"
    READ_NETWORK = "read what concerns all studies"
    WRITE_NETWORK = "change what concerns all studies"


ALLOWED = {
    TokenRole.TRAINER: frozenset({Permission.READ_STUDY, Permission.WRITE_STUDY}),
    TokenRole.READER: frozenset({Permission.READ_STUDY, Permission.READ_NETWORK}),
    TokenRole.OPERATOR: frozenset(Permission),
}
"""What each role may do: to a study, where it is the token's; with all studies, where the token is for every one."""


class TokenError(BeamerError):
    """A token that proves nothing. kind: one of few words, why; the token itself is never shown."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(frozen=True)
class Claims:
    """What a token grants: a role in one study, or in `EVERY_STUDY`. Raises `InputError` for a study that cannot be."""

    study: str
    role: TokenRole

    def __post_init__(self) -> None:
        if self.study != EVERY_STUDY:
            check_name(self.study, "study")
            if self.role is TokenRole.OPERATOR:
                raise InputError("study", self.study, f"{EVERY_STUDY!r}, as an operator's token is for every study")

    def covers(self, study: str) -> bool:
        """Return whether a study is among those that it is for."""
        return self.study in (EVERY_STUDY, study)

    def permits(self, action: Permission, study: str | None) -> bool:
        """Return whether it allows an action. study: the one that is concerned, None: all of them."""
        concerned = self.study == EVERY_STUDY if study is None else self.covers(study)
        return concerned and action in ALLOWED[self.role]


@dataclass(frozen=True)
class TokenKey:
    """The secret that tokens are signed with."""

    secret: bytes = field(repr=False)


class _Payload(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    iss: str
    aud: str
    study: str
    role: TokenRole = Field(strict=False)
    iat: int
    exp: int


def make_key(path: Path) -> None:
    """Write a new random key to a new file. Raises `InputError` if the file is there, or cannot be made."""
    create_secret(path, secrets.token_hex(_KEY_BYTES).encode() + b"\n", "--new-key")


def read_key(path: Path, field: str) -> TokenKey:
    """Return the key in a file that `make_key` has written. Raises `InputError`, without showing what is in it."""
    try:
        secret = bytes.fromhex(read_secret(path, field).decode("ascii"))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        secret = b""
    if len(secret) != _KEY_BYTES:
        raise InputError(field, str(path), "a file made by `beamer token --new-key FILE`")
    return TokenKey(secret)


def parse_role(text: str) -> TokenRole:
    """Return the role of that name. Raises `InputError`."""
    try:
        return TokenRole(text)
    except ValueError:
        raise InputError("--role", text, nearest(text, [role.value for role in TokenRole])) from None


def sign_token(key: TokenKey, claims: Claims, now_s: float, valid_s: float) -> str:
    """Return a token that is valid for so many seconds from now (Unix time)."""
    payload = _Payload(
        iss=_ISSUER, aud=_AUDIENCE, study=claims.study, role=claims.role, iat=int(now_s), exp=int(now_s + valid_s)
    )
    return jwt.encode(payload.model_dump(mode="json"), key.secret, _ALGORITHM)


def read_token(key: TokenKey, token: str, now_s: float) -> Claims:
    """Return what a token grants now (Unix time). Raises `TokenError`."""
    if len(token) > MAX_CHARACTERS:
        raise TokenError("malformed", f"the token has more than {MAX_CHARACTERS} characters")
    try:
        # Whether the token has expired is judged below, by a clock that is an argument.
        payload = jwt.decode(
            token,
            key.secret,
            [_ALGORITHM],
            {"verify_exp": False, "verify_iat": False, "verify_nbf": False},
            audience=_AUDIENCE,
            issuer=_ISSUER,
        )
    except jwt.InvalidAlgorithmError:
        raise TokenError("algorithm", f"the token is not signed by {_ALGORITHM}") from None
    except jwt.InvalidSignatureError:
        raise TokenError("signature", "the token is not signed by this controller's key") from None
    except (jwt.InvalidAudienceError, jwt.InvalidIssuerError, jwt.MissingRequiredClaimError):
        raise TokenError("claims", _FOREIGN_CLAIMS) from None
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        raise TokenError("malformed", "the token cannot be read") from None
    try:
        read = _Payload.model_validate(payload)
        claims = Claims(read.study, read.role)
    except (ValidationError, InputError):
        raise TokenError("claims", _FOREIGN_CLAIMS) from None
    if read.exp <= now_s:
        raise TokenError("expired", "the token has expired")
    return claims
