"""A request to the controller as it waits: what it is about, what it says, and what must have been said before it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any
from urllib.parse import quote

from beamer.protocol_version import FIRST_VERSION
from beamer.studies.model import check_name

SINCE: dict[tuple[tuple[str, ...], str], int] = {((), "member"): 2, (("attempts",), "step"): 2, (("attempts",), "here"): 2}
"""By what a request does (`PutRequest.kind`) and a key of its body: the version that the key came with, if not the first."""

Scope = tuple[str, str | None, str | None, str | None]
"""A study, or a stage, a trial or a member of it, whichever the run."""


@dataclass(frozen=True)
class Address:
    """What a request is about: a run of a study (None: the present one), or a stage, a trial or a member of it."""

    study: str
    run: str | None = None
    stage: str | None = None
    trial: str | None = None
    member: str | None = None

    @property
    def scope(self) -> Scope:
        """Return it without the run."""
        return self.study, self.stage, self.trial, self.member

    def path(self, *parts: str) -> str:
        """Return the API's path of it, and of `parts` below. Raises `InputError` for a name that none may have."""
        named = [
            ("study", "studies", self.study),
            ("stage", "stages", self.stage),
            ("trial", "trials", self.trial),
            ("member", "members", self.member),
        ]
        path = "/v1" + "".join(f"/{folder}/{_quoted(name, kind)}" for kind, folder, name in named if name is not None)
        path += "".join(f"/{_quoted(part, 'name')}" for part in parts)
        return path if self.run is None else f"{path}?run={_quoted(self.run, 'run')}"

    def __str__(self) -> str:
        return "/".join(str(name) for name in self.scope if name is not None)


def _quoted(name: str, field: str) -> str:
    return quote(check_name(name, field), safe="")


def name_of(value: Any) -> Any:
    """Return a name for an address, in which None would stand for nothing: it is left for the outbox to refuse."""
    return "" if value is None else value


@dataclass(eq=False)
class PutRequest:
    """A PUT to a study, stage or trial.

    parts: of the path below it: what is done, in every other place a name. body: sent as JSON unless None. progress: newer
    progress of the same trial replaces it. then: called when it is done with, answered or not. unless: asked before it is sent,
    says whether it is not to be. since: the version of the
    protocol that knows it. instead: what a controller of an earlier version is sent, None: nothing.
    """

    address: Address
    parts: tuple[str, ...] = ()
    body: dict[str, Any] | None = None
    progress: bool = False
    then: Callable[[], None] | None = None
    unless: Callable[[], bool] | None = None
    since: int = FIRST_VERSION
    instead: "PutRequest | None" = None
    path: str = field(init=False, default="")
    content: bytes | None = field(init=False, default=None)

    @property
    def kind(self) -> tuple[str, ...]:
        """What it does, whichever the worker or attempt."""
        return self.parts[::2]

    @property
    def registers(self) -> bool:
        """Whether it makes known what it is about."""
        return not self.parts

    @property
    def renews(self) -> bool:
        """Whether it only says that a process still takes part in a study."""
        return self.address.member is not None and not self.parts

    @property
    def starts_trial(self) -> bool:
        """Whether an attempt of its trial begins with it."""
        return self.kind == ("attempts",)

    @property
    def ends_trial(self) -> bool:
        """Whether its trial is over with it."""
        return self.parts == ("status",)

    def needs(self) -> Iterator[tuple[Scope, bool]]:
        """Yield what it is about and builds on, each with whether it changes it: it is sent after all earlier changes of that.

        What it changes, it changes after everything earlier that builds on that.
        """
        study = (self.address.study, None, None, None)
        own = self.address.scope
        yield own, True
        if own != study:
            yield study, self.address.member is not None and bool(self.parts)  # Its leaving ends what it began.
        stage = None if self.address.trial is None or self.body is None else self.body.get("stage")
        if isinstance(stage, str):
            yield (self.address.study, stage, None, None), False

    def follow(self, older: "PutRequest") -> None:
        """Take the place of older progress that was not sent: its loss is the last one known unless this has one."""
        if self.body is not None and older.body is not None and "loss" in older.body and "loss" not in self.body:
            self.body["loss"] = older.body["loss"]
            self.encode()

    def encode(self) -> None:
        """Fix the path and the content that are sent. Raises whatever the body's values raise, `ValueError` mostly."""
        self.path = self.address.path(*self.parts)
        self.content = None if self.body is None else json.dumps(self.body, default=_plain, allow_nan=False).encode()
        if self.instead is not None:
            self.instead.encode()

    def for_version(self, version: int) -> "PutRequest | None":
        """Return what a controller of a version is sent: this, something else or nothing."""
        return self if self.since <= version else self.instead

    def content_for(self, version: int) -> bytes | None:
        """Return the content without what a controller of a version does not know."""
        newer = [key for key in self.body or () if SINCE.get((self.kind, key), FIRST_VERSION) > version]
        if not newer or self.content is None:
            return self.content
        return json.dumps({key: value for key, value in json.loads(self.content).items() if key not in newer}).encode()

    def __str__(self) -> str:
        return "/".join((str(self.address), *self.parts))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "item"):  # Numbers of NumPy and PyTorch have this method.
        return value.item()
    raise TypeError(f"{value!r} has no JSON form")
