"""Messages to and from peers of other versions: what is left out, what is not used, and what is refused."""

import json
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from beamer.protocol_version import PROTOCOL_VERSION, Since
from beamer.versioned_messages import MAX_NAME_CHARACTERS, MAX_NAMED, Decoded, decode, encode, is_known

NEWER = PROTOCOL_VERSION + 1


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Part:
    size: int
    colour: Annotated[str, Since(2)] = ""


class Inner(Strict):
    parts: tuple[Part, ...] = ()
    pair: tuple[int, Part] = (0, Part(0))
    extra: Annotated[int, Since(2)] = 0


class Outer(Strict):
    kind: Literal["outer"] = "outer"
    inner: Inner = Inner()
    named: Annotated[dict[str, Inner], Field(max_length=3)] = {}
    maybe: Inner | None = None
    late: Annotated[Inner | None, Since(2)] = None


class Other(Strict):
    since: ClassVar[int] = 2
    kind: Literal["other"] = "other"


BOTH: TypeAdapter[Outer | Other] = TypeAdapter(Annotated[Outer | Other, Field(discriminator="kind")])
FULL = Outer(
    inner=Inner(parts=(Part(1, "red"),), pair=(3, Part(2, "blue")), extra=4),
    named={"a": Inner(extra=1)},
    maybe=Inner(extra=2),
    late=Inner(extra=3),
)


def test_a_message_to_a_peer_of_the_same_version_is_whole() -> None:
    assert BOTH.validate_json(encode(FULL, PROTOCOL_VERSION)) == FULL
    assert encode(FULL, NEWER) == encode(FULL, PROTOCOL_VERSION)


def test_an_older_peer_is_sent_nothing_that_it_does_not_know_however_deep() -> None:
    inner = {"parts": [], "pair": [0, {"size": 0}]}
    assert json.loads(encode(FULL, 1)) == {
        "kind": "outer",
        "inner": {"parts": [{"size": 1}], "pair": [3, {"size": 2}]},
        "named": {"a": inner},
        "maybe": inner,
    }


def test_an_older_peer_does_not_know_kinds_that_came_later() -> None:
    assert [is_known(kind, version) for kind in (Outer, Other) for version in (1, 2)] == [True, True, False, True]


def test_what_a_newer_peer_says_beyond_this_version_is_not_used_and_named() -> None:
    text = json.dumps(
        {"kind": "outer", "new": 1, "inner": {"parts": [{"size": 5, "weight": 2}, {"size": 6, "weight": 3}], "more": []}}
    )
    decoded = decode(BOTH, text, NEWER)
    assert decoded.message == Outer(inner=Inner(parts=(Part(5), Part(6))))
    assert set(decoded.unused) == {"outer.new", "outer.inner.more", "outer.inner.parts.weight"}


def test_a_kind_that_only_a_newer_peer_knows_is_no_message_and_is_named() -> None:
    assert decode(BOTH, '{"kind": "third", "x": 1}', NEWER) == Decoded(None, ("third",))


@pytest.mark.parametrize("version", [1, PROTOCOL_VERSION])
@pytest.mark.parametrize("text", ['{"kind": "outer", "new": 1}', '{"kind": "third"}'])
def test_a_peer_that_is_not_newer_is_refused_what_is_unknown(version: int, text: str) -> None:
    with pytest.raises(ValidationError):
        decode(BOTH, text, version)


@pytest.mark.parametrize(
    "text", ['{"kind": "outer", "new": 1, "inner": 3}', '{"king": 3}', "[", '{"kind": "outer", "maybe": 1}']
)
def test_what_is_wrong_is_refused_of_a_newer_peer_too(text: str) -> None:
    with pytest.raises(ValidationError):
        decode(BOTH, text, NEWER)


def test_of_a_long_unknown_name_the_beginning_is_kept() -> None:
    (named,) = decode(BOTH, json.dumps({"kind": "outer", "x" * 10_000: 0}), NEWER).unused
    assert named.startswith("outer.xxx")
    assert len(named) < 2 * MAX_NAME_CHARACTERS


def test_few_of_many_unknown_fields_are_named() -> None:
    text = json.dumps({"kind": "outer"} | {f"x{number}": 0 for number in range(1000)})
    decoded = decode(BOTH, text, NEWER)
    assert (decoded.message, len(decoded.unused)) == (Outer(), MAX_NAMED)
