"""Authorization, in one place: whether a request may be carried out, by its token or by its agent's certificate.

    /v1/health              anybody
    /v1/agents/{name}       the agent whose certificate has this name, where the controller speaks TLS
    /v1/studies             whoever reads; of all studies, those of the token
    .../{study}/engine      whoever writes to the study
    .../{study}/...         GET: whoever reads the study, else: whoever writes to it
    all else, by default    GET: whoever reads what concerns all studies, else: an operator

Study and name come from the path that the route has matched, so that what is checked is what is carried out.
"""

from collections.abc import Callable
from http import HTTPStatus

import structlog
from starlette.requests import HTTPConnection

from beamer.errors import BeamerError, InputError
from beamer.log_limit import VariedLogLimit
from controller.identity.certificates import agent_of
from controller.identity.tokens import EVERY_STUDY, Claims, Permission, TokenError, TokenKey, TokenRole, read_token
from controller.websocket import PEER_CERTIFICATE

HEALTH, STUDIES, AGENT = "/v1/health", "/v1/studies", "/v1/agents/{name}"
LOG_AGAIN_S = 3600.0  # A denial of the same kind from the same peer is logged again after so long.
# So many denials of a kind are logged in that time, from all peers: addresses cost an attacker little, the disk is shared.
MAX_LOGGED = 60
_SCHEME = "bearer "
_UNLIMITED = Claims(EVERY_STUDY, TokenRole.OPERATOR)

log = structlog.get_logger("beamer-controller")


class DeniedError(BeamerError):
    """A request that is not carried out for who asks. kind: one of few words, by which it is logged."""

    def __init__(self, status: HTTPStatus, kind: str, message: str, expected: str) -> None:
        self.status = status
        self.kind = kind
        self.expected = expected
        super().__init__(message)


class Authorization:
    """The dependency of every route. key: of the tokens, None: whoever reaches the controller may do everything.

    certified: whether agents have to show certificates. clock: Unix time, by which tokens expire.
    """

    def __init__(self, key: TokenKey | None, certified: bool, clock: Callable[[], float]) -> None:
        self._key = key
        self._certified = certified
        self._clock = clock
        self._denials = VariedLogLimit(MAX_LOGGED, LOG_AGAIN_S)

    async def __call__(self, connection: HTTPConnection) -> Claims | None:
        """Return what the bearer of a request's token may do, None where none is asked for. Raises `DeniedError`."""
        path = connection.scope["route"].path
        try:
            if path not in (HEALTH, AGENT):
                return self._check_token(connection, path)
            if path == AGENT and self._certified:
                _check_agent(connection)
        except DeniedError as error:
            self._log(connection, path, error)
            raise
        return None

    def _check_token(self, connection: HTTPConnection, path: str) -> Claims:
        claims = self._claims(connection)
        study = connection.path_params.get("study")
        reads = connection.scope.get("method") in ("GET", "HEAD")  # An engine's WebSocket has no method.
        if study is not None:
            action = Permission.READ_STUDY if reads else Permission.WRITE_STUDY
        elif path == STUDIES:
            return claims  # Every role may read some studies, and gets no others.
        else:
            action = Permission.READ_NETWORK if reads else Permission.WRITE_NETWORK
        if not claims.permits(action, study):
            what = action if study is None else f"{action} {study!r}"
            message = f"the {claims.role} of {_of(claims.study)} may not {what}"
            kind = "study" if claims.study != EVERY_STUDY and claims.study != study else "role"
            raise DeniedError(HTTPStatus.FORBIDDEN, kind, message, f"a token that allows to {what}")
        return claims

    def _claims(self, connection: HTTPConnection) -> Claims:
        if self._key is None:
            return _UNLIMITED
        expected = "Authorization: Bearer and a valid token, as `beamer token` prints it"
        given = connection.headers.getlist("authorization")
        if not given:
            raise DeniedError(HTTPStatus.UNAUTHORIZED, "none", "there is no token", expected)
        if len(given) > 1 or not given[0].lower().startswith(_SCHEME):
            raise DeniedError(HTTPStatus.UNAUTHORIZED, "malformed", "there is no bearer token", expected)
        try:
            return read_token(self._key, given[0][len(_SCHEME) :].strip(), self._clock())
        except TokenError as error:
            raise DeniedError(HTTPStatus.UNAUTHORIZED, error.kind, str(error), expected) from error

    def _log(self, connection: HTTPConnection, path: str, error: DeniedError) -> None:
        peer = connection.client.host if connection.client else "unknown"
        if self._denials.take(error.kind, peer):
            log.warning("request denied", peer=peer, path=path, reason=str(error))


def _check_agent(connection: HTTPConnection) -> None:
    name = connection.path_params["name"]
    expected = f"the certificate of agent {name!r}"
    try:
        certified = agent_of(connection.scope["state"][PEER_CERTIFICATE]())
    except InputError as error:
        raise DeniedError(HTTPStatus.UNAUTHORIZED, "certificate", f"agent {name!r}: {error}", expected) from error
    if certified != name:
        message = f"agent {name!r}: its certificate is for {certified}"
        raise DeniedError(HTTPStatus.FORBIDDEN, "agent", message, expected)


def _of(study: str) -> str:
    return "every study" if study == EVERY_STUDY else f"study {study!r}"
