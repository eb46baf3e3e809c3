"""Rates and sizes as people write them, converted once at the edge to bit/s and bytes."""

import re
from typing import Any

from beamer.errors import InputError

_RATE = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
_SIZE = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
MAX_DIGITS = 30  # An amount with more digits is no rate and no size.
_QUANTITY = re.compile(r"\s*([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def whole(value: Any) -> Any:
    """Return the integer that a float without a fraction is, such as 1e8; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parse(text: str | int | float, table: dict[str, int], field: str, expected: str) -> int:
    count = whole(text)
    if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
        return count
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    unit = match.group(2).lower() if match else ""
    scale = table.get(unit) if unit else 1
    if match is None or scale is None or len(match.group(1)) > MAX_DIGITS:
        raise InputError(field, text, expected)
    amount = match.group(1).replace("_", "")
    return int(amount) * scale if amount.isdecimal() else round(float(amount) * scale)


def parse_rate(text: str | int | float, field: str = "rate") -> int:
    """Return a rate such as `20mbit` in bit/s; a bare number is bit/s. Raises `InputError` unless positive."""
    expected = "a rate above 0 such as '20mbit', or a whole number of bit/s"
    rate = _parse(text, _RATE, field, expected)
    if rate <= 0:
        raise InputError(field, text, expected)
    return rate


def rate_text(rate_bps: int) -> str:
    """Return a rate as `parse_rate` reads it, in the largest unit of which it is a whole number."""
    unit = max((unit for unit, scale in _RATE.items() if rate_bps % scale == 0), key=_RATE.__getitem__)
    return f"{rate_bps // _RATE[unit]}{unit}"


def parse_size(text: str | int | float, field: str = "bytes") -> int:
    """Return a size such as `600kB` or `4MiB` in bytes; a bare number is bytes. Raises `InputError`."""
    return _parse(text, _SIZE, field, "a size of at least 0 such as '600kB' or '4MiB', or a whole number of bytes")


UNSCALED_WINDOW_BYTES = 65535  # the largest TCP window without a scale (RFC 7323)
ETHERNET_MTU = 1500
ETHERNET_HEADER = 14
TCP_HEADERS = 52  # 20 IPv4, 32 TCP with timestamps


def segment(mtu: int) -> tuple[int, int]:
    """Return payload and frame bytes of a full-size TCP segment. Link counters, HTB and OpenFlow all count frames."""
    return mtu - TCP_HEADERS, mtu + ETHERNET_HEADER


def frame_bytes(payload: float, mtu: int) -> float:
    """Return the bytes that `payload` bytes of a TCP stream occupy on an Ethernet link, headers included."""
    per_segment, frame = segment(mtu)
    return payload * frame / per_segment
