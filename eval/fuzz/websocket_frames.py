"""WebSocket frames that no library sends (RFC 6455, section 5), for either side of a connection."""

import random
import struct
from collections.abc import Callable, Sequence

from eval.fuzz.mutations import mutated

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
RESERVED = (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
NO_TEXT = (b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"a\x80", b"\xe2\x82")
CLOSINGS = (
    *(b"", b"\x03", b"\x00\x00", b"\x03\xec", b"\x03\xed", b"\x03\xf7", b"\xff\xff"),
    *(b"\x03\xe8\xff\xfe", b"\x03\xe8" + b"x" * 200),
)
"""Contents of a closing frame: codes that none may have, reasons that are no text, ones that are too long."""

FRAGMENTS = (2, 30, 3000)
PINGS = 200
LENGTHS = (126, 127, 1 << 16, 1 << 20, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def frame(
    opcode: int, payload: bytes = b"", *, masked: bool, last: bool = True, reserved: int = 0, length: int | None = None
) -> bytes:
    """Return a frame. masked: as a client's is. length: that is claimed, the payload's own by default."""
    claimed = len(payload) if length is None else length
    head = bytes((last << 7 | reserved << 4 | opcode,))
    bit = masked << 7
    if claimed < 126 and length is None:
        head += bytes((bit | claimed,))
    elif claimed < 1 << 16:
        head += struct.pack("!BH", bit | 126, claimed)
    else:
        head += struct.pack("!BQ", bit | 127, claimed)
    if not masked:
        return head + payload
    key = b"\x12\x34\x56\x78"
    return head + key + bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


def hostile_frames(rng: random.Random, messages: Sequence[bytes], masked: bool) -> bytes:
    """Return a stream of one to four frames, some of them against the protocol. messages: valid ones, of text."""
    return b"".join(rng.choice(_KINDS)(rng, rng.choice(messages), masked) for _ in range(rng.choice((1, 1, 2, 4))))


def _valid(rng: random.Random, message: bytes, masked: bool) -> bytes:
    return frame(rng.choice((TEXT, TEXT, BINARY)), message, masked=masked)


def _changed(rng: random.Random, message: bytes, masked: bool) -> bytes:
    whole = frame(TEXT, message, masked=masked)
    return mutated(rng, whole, (whole, frame(PING, b"x", masked=masked)))


def _reserved(rng: random.Random, message: bytes, masked: bool) -> bytes:
    if rng.random() < 0.5:
        return frame(rng.choice(RESERVED), message[:100], masked=masked)
    return frame(TEXT, message, masked=masked, reserved=rng.choice((1, 2, 4, 7)))


def _of_the_other_side(rng: random.Random, message: bytes, masked: bool) -> bytes:
    return frame(TEXT, message, masked=not masked)


def _length(rng: random.Random, message: bytes, masked: bool) -> bytes:
    return frame(rng.choice((TEXT, CLOSE, PING)), message[:200], masked=masked, length=rng.choice(LENGTHS))


def _fragments(rng: random.Random, message: bytes, masked: bool) -> bytes:
    """Begin a message, go on with it in parts, some of them empty, and end it, begin another one, or neither."""
    parts = rng.choice(FRAGMENTS)
    piece = rng.choice((b"", message[:10], message))[: 200_000 // parts]
    begin = frame(rng.choice((TEXT, TEXT, CONTINUATION)), piece, masked=masked, last=False)
    more = frame(CONTINUATION, piece, masked=masked, last=False) * parts
    end = rng.choice((b"", frame(CONTINUATION, piece, masked=masked), frame(TEXT, message, masked=masked)))
    return begin + more + end


def _control(rng: random.Random, message: bytes, masked: bool) -> bytes:
    opcode = rng.choice((PING, PONG, CLOSE))
    match rng.randrange(3):
        case 0:
            return frame(opcode, message[:100], masked=masked, last=False)
        case 1:
            return frame(opcode, b"x" * rng.choice((126, 5000)), masked=masked)
        case _:
            return frame(PING, b"x" * 125, masked=masked) * PINGS


def _no_text(rng: random.Random, message: bytes, masked: bool) -> bytes:
    return frame(TEXT, message[: rng.randrange(len(message) + 1)] + rng.choice(NO_TEXT), masked=masked)


def _closing(rng: random.Random, message: bytes, masked: bool) -> bytes:
    return frame(CLOSE, rng.choice(CLOSINGS), masked=masked) + rng.choice((b"", frame(TEXT, message, masked=masked)))


def _unfinished(rng: random.Random, message: bytes, masked: bool) -> bytes:
    whole = frame(TEXT, message, masked=masked)
    return whole[: rng.randrange(len(whole) + 1)]


_KINDS: tuple[Callable[[random.Random, bytes, bool], bytes], ...] = (
    *(_valid, _changed, _changed, _reserved, _of_the_other_side, _length),
    *(_fragments, _control, _no_text, _closing, _unfinished),
)
