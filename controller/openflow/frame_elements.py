"""Walks over the elements of a frame, each with a length of its own, and checks every length before it is believed."""

import struct
from collections.abc import Iterator, Mapping

from os_ken.ofproto import ofproto_v1_3 as ofp

LENGTH = struct.Struct("!H")
WORD = struct.Struct("!I")
ALIGNED = 8
OXM_HEADER = 4
BASIC_CLASS = 0x8000  # The fields of the standard have this class: a rule of Beamer's has no other.

_FIELD_BYTES: Mapping[int, int] = {field.num: field.type.size for field in ofp.oxm_types if isinstance(field.num, int)}


class FrameError(Exception):
    """A frame that contradicts itself or the standard: says what is wrong, and at which byte."""


def match_end(frame: bytearray, offset: int, limit: int) -> int:
    """Check a match and return where its padding ends."""
    end = element_end(frame, offset, limit, 4, "a match")
    (kind,) = LENGTH.unpack_from(frame, offset)
    if kind != ofp.OFPMT_OXM:
        raise FrameError(f"a match of type {kind} at byte {offset}, expected {ofp.OFPMT_OXM}")
    padded = end + -(end - offset) % ALIGNED
    if padded > limit:
        raise FrameError(f"a match at byte {offset} whose padding ends at byte {padded}, behind byte {limit}")
    seen: set[int] = set()
    at = offset + 4
    while at < end:
        header, at_next = read_field(frame, at, end)
        if header >> 16 != BASIC_CLASS:
            raise FrameError(f"a field of class {header >> 16:#06x} at byte {at}, which no rule of Beamer's has")
        if header >> 9 in seen:  # A match has 40 fields at most, as none comes twice.
            raise FrameError(f"a match at byte {offset} with a field for the second time, at byte {at}")
        seen.add(header >> 9)
        at = at_next
    return padded


def read_field(frame: bytearray, offset: int, limit: int) -> tuple[int, int]:
    """Check a match field's lengths and return its header and where it ends."""
    if limit - offset < OXM_HEADER:
        raise FrameError(f"a match field at byte {offset} with {limit - offset} bytes of its header")
    (header,) = WORD.unpack_from(frame, offset)
    length = header & 0xFF
    end = offset + OXM_HEADER + length
    if not 0 < length <= limit - offset - OXM_HEADER:
        raise FrameError(f"a match field at byte {offset}: length {length}, expected 1 to {limit - offset - OXM_HEADER}")
    if header >> 16 == BASIC_CLASS:
        size = _FIELD_BYTES.get(header >> 9)
        if size is None:
            raise FrameError(f"a match field at byte {offset}: number {header >> 9 & 0x7F}, which the standard does not define")
        expected = 2 * size if header & 0x100 else size
        if length != expected:
            raise FrameError(f"a match field at byte {offset}: length {length}, expected {expected}")
    return header, end


def elements(
    frame: bytearray, offset: int, limit: int, least: int, what: str, *, length_at: int = 2, aligned: bool = False
) -> Iterator[tuple[int, int]]:
    """Yield where each of consecutive elements begins and ends; together they fill the space up to `limit`."""
    while offset < limit:
        end = element_end(frame, offset, limit, least, what, length_at)
        if aligned and (end - offset) % ALIGNED:
            raise FrameError(f"{what} at byte {offset}: length {end - offset}, expected a multiple of {ALIGNED}")
        yield offset, end
        offset = end


def element_end(frame: bytes | bytearray, offset: int, limit: int, least: int, what: str, length_at: int = 2) -> int:
    """Return where the element at `offset` ends, by its length of at least `least` bytes."""
    if limit - offset < least:
        raise FrameError(f"{what} at byte {offset}: {limit - offset} bytes are left, expected at least {least}")
    (length,) = LENGTH.unpack_from(frame, offset + length_at)
    if not least <= length <= limit - offset:
        raise FrameError(f"{what} at byte {offset}: length {length}, expected {least} to {limit - offset}")
    return offset + int(length)


def check_size(kind: int, sizes: Mapping[int, int], offset: int, end: int, what: str) -> None:
    """Raise `FrameError` where an element of a type has another size than that."""
    if sizes.get(kind) != end - offset:
        expected = sizes.get(kind, "a known type")
        raise FrameError(f"{what} of type {kind} at byte {offset}: length {end - offset}, expected {expected}")


def check_least(frame: bytearray, size: int, what: str) -> None:
    """Raise `FrameError` for a frame that is too short."""
    if len(frame) < size:
        raise FrameError(f"{what} of {len(frame)} bytes, expected at least {size}")
