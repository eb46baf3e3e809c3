"""Rates and sizes as people write them."""

import math
from typing import Any

import pytest

from beamer.errors import InputError
from beamer.units import frame_bytes, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "bps"), [("20mbit", 20_000_000), ("1.5 Gbit", 1_500_000_000), (64_000, 64_000), ("7bit", 7), (1e9, 10**9)]
)
def test_rates(text: str | float, bps: int) -> None:
    assert parse_rate(text) == bps


@pytest.mark.parametrize(
    ("text", "size"),
    [("600kB", 600_000), ("4MiB", 4 * 2**20), (0, 0), ("1.5kb", 1500), (1e8, 10**8), ("1_000", 1000), (2**60 + 1, 2**60 + 1)],
)
def test_sizes(text: str | float, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["0", "-5mbit", "fast", "20mb", True, "", "nan", "0.1bit", 1.5, math.inf, -1e9])
def test_rates_that_cannot_be(text: str | float) -> None:
    with pytest.raises(InputError, match=r"link\.rate: got"):
        parse_rate(text, "link.rate")


@pytest.mark.parametrize(
    "text", ["-1", "many", "5mbit", False, "1e6", 0.5, math.nan, math.inf, -1.0, "1__0", "9" * 5000, None, []]
)
def test_sizes_that_cannot_be(text: Any) -> None:
    with pytest.raises(InputError, match="bytes: got"):
        parse_size(text)


def test_frames_add_the_headers_of_full_segments() -> None:
    assert frame_bytes(1448 * 10, 1500) == 1514 * 10
