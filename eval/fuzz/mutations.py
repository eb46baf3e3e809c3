"""Changes to valid bytes that find the faults of parsers: lengths, counts, cuts, repetitions, and parts of other inputs."""

import random
from collections.abc import Callable, Sequence

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 24, 40, 56, 64, 127, 128, 255, 256, 1024, 0x7FFF, 0x8000, 0xFFF8, 0xFFFF)
"""Around the sizes of headers and entries, and where integers end."""

MAX_BYTES = 1 << 17  # A changed input has at most so many bytes: a longer one only repeats itself.


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return `data` with one to four changes. others: where parts may come from."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(_CHANGES)(rng, data, others)[:MAX_BYTES]
    return data


def _byte(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes((rng.choice((rng.choice(NUMBERS) & 0xFF, rng.randrange(256))),)) + data[at + 1 :]


def _word(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = 2 * rng.randrange(len(data) // 2 + 1)
    value = rng.choice((*NUMBERS, len(data) & 0xFFFF))
    return data[:at] + value.to_bytes(2, "big") + data[at + 2 :]


def _cut(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _remove(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _range(rng, data)
    return data[:start] + data[end:]


def _repeat(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _range(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 2, 40)) + data[end:]


def _splice(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    start, end = _range(rng, other)
    at = rng.randrange(len(data) + 1)
    return data[:at] + other[start:end] + data[at:]


def _noise(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 8, 64, 1000))) + data[at:]


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    start, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return start, end


_CHANGES: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (
    *(_byte, _byte, _word, _word, _word),
    *(_cut, _remove, _repeat, _splice, _noise),
)
"""More often what parsers follow: lengths, counts and types."""
