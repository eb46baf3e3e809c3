"""Questions that a switch need not know: one with which connections end again and again is not asked there any more."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import structlog

from controller.openflow.channel import ChannelError

ENDINGS = 2  # Any connection may end at that moment once.

log = structlog.get_logger("beamer-controller")


class Question(Enum):
    """A question, by what it is for."""

    CHANGES = "changes"
    TABLES = "the features of tables"


class Questions:
    """What may be asked of all switches while this controller leads."""

    def __init__(self) -> None:
        self._endings: Counter[tuple[str, Question]] = Counter()

    def may_ask(self, switch: str, question: Question) -> bool:
        """Return whether connections of a switch have not ended with a question as often as shows that it is the cause."""
        return self._endings[switch, question] < ENDINGS

    @contextmanager
    def asking(self, switch: str, question: Question) -> Iterator[None]:
        """Take in whether the connection ends while a question is asked."""
        try:
            yield
        except ChannelError:
            self._endings[switch, question] += 1
            if not self.may_ask(switch, question):
                what = f"connections ended with the question for {question.value}, which is not asked again"
                log.warning(what, switch=switch)
            raise
        del self._endings[switch, question]
