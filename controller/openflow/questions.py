"""Questions that a switch is not obliged to know: one with which a connection has ended is not asked there again."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import structlog

from controller.openflow.channel import ChannelError

log = structlog.get_logger("beamer-controller")


class Question(Enum):
    """A question, by what it is for."""

    CHANGES = "changes"
    TABLES = "the features of tables"


class Questions:
    """What may be asked of all switches while this controller leads."""

    def __init__(self) -> None:
        self._ended_with: set[tuple[str, Question]] = set()

    def may_ask(self, switch: str, question: Question) -> bool:
        """Return whether no connection of a switch has ended with a question."""
        return (switch, question) not in self._ended_with

    @contextmanager
    def asking(self, switch: str, question: Question) -> Iterator[None]:
        """Take in whether the connection ends while a question is asked."""
        try:
            yield
        except ChannelError:
            self._ended_with.add((switch, question))
            log.warning(f"connection ended with the question for {question.value}, which is not asked again", switch=switch)
            raise
