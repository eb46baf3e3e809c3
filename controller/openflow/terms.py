"""The term under which a controller leads, by which switches tell the latest leader from those before it.

It is the `generation_id` of OpenFlow's role requests (1.3.5, 6.3.6): a switch refuses one earlier than any that it has obeyed.
Terms are a journal's: each writer has a later one than all before it. A switch may all the same have obeyed a later term, of
another journal, or of one that was lost. Then the leader learns that term, and has its own raised above it, in its journal
first.

Two controllers on one journal cannot outdo each other so. A term is given, or raised, only in a transaction of the session that
holds the right to write; the right passes on when that session has ended, and with it all its transactions, so that the next
leader reads the raised term and takes a later one. Whoever has lost the right, and learns from a switch of a term that is later
than its own, is refused by the journal, and ends.
"""

from typing import Protocol


class Terms(Protocol):
    """The term of this controller's leadership."""

    @property
    def term(self) -> int:
        """The term now."""

    async def raise_term(self, least: int) -> int:
        """Have it be at least `least`, as long as this controller leads, and return it.

        Raises `PlatformError` where it leads no more, or cannot know, and `InputError` for a number that no term can be.
        """
