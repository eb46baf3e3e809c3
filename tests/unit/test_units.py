"""Rates and sizes as people write them."""

import pytest

from beamer.errors import InputError
from beamer.units import frame_bytes, parse_rate, parse_size


@pytest.mark.parametrize(("text", "bps"), [("20mbit", 20_000_000), ("1.5 Gbit", 1_500_000_000), (64_000, 64_000), ("7bit", 7)])
def test_rates(text: str | int, bps: int) -> None:
    assert parse_rate(text) == bps


@pytest.mark.parametrize(("text", "size"), [("600kB", 600_000), ("4MiB", 4 * 2**20), (0, 0), ("1.5kb", 1500)])
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["0", "-5mbit", "fast", "20mb", True, "", "nan", "0.1bit"])
def test_rates_that_cannot_be(text: str) -> None:
    with pytest.raises(InputError, match=r"link\.rate: got"):
        parse_rate(text, "link.rate")


@pytest.mark.parametrize("text", ["-1", "many", "5mbit", False, "1e6"])
def test_sizes_that_cannot_be(text: str) -> None:
    with pytest.raises(InputError, match="bytes: got"):
        parse_size(text)


def test_frames_add_the_headers_of_full_segments() -> None:
    assert frame_bytes(1448 * 10, 1500) == 1514 * 10
