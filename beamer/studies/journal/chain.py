"""What ties an event to all events before it, so that one that was changed, lost, added or moved is found when it is read.

A checksum finds accidents (a bad disk, an edit by hand), not an adversary, who could compute it as well.
"""

from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True)
class ChainLink:
    """An event's number, from 1, and the checksum of it and all events before it."""

    number: int
    checksum: int

    def next(self, kind: str, content: str) -> "ChainLink":
        """Return the link of the event after this one."""
        return ChainLink(self.number + 1, crc32(f"{kind}\0{content}".encode(), self.checksum))


BEGINNING = ChainLink(0, 0)
"""The link before the first event."""


@dataclass(frozen=True)
class Head:
    """Where a chain ends, and which writer has written there: the term of its leadership, counted from 1."""

    link: ChainLink = BEGINNING
    term: int = 0

    @property
    def seal(self) -> int:
        """The checksum of both, by which a head that was changed is found."""
        return checksum(f"{self.link.number} {self.link.checksum} {self.term}")


def checksum(content: str) -> int:
    """Return the checksum of a text by itself."""
    return crc32(content.encode())
