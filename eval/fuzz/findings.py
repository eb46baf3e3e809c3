"""What a run of hostile inputs has found, for each of the things that listen alike."""

from dataclasses import dataclass, field

SLOW_TURN_S = 0.25  # The peers of a controller notice turns of an event loop that take so long.


@dataclass(frozen=True)
class FuzzFailure:
    """An input after which something was not as before. data: what was sent, hexadecimal, one part per connection."""

    what: str
    data: tuple[str, ...]


@dataclass(frozen=True)
class Findings:
    """The result of one run.

    inputs: tried; each was accepted (its peer was still being served at its end) or refused. longest_turn_s, p99_turn_s: by how
    much the event loop was late. slow_turns: later than `SLOW_TURN_S`. busiest_turn_s: the most processor time of a turn.
    grown_bytes: of resident memory, from when the first inputs had been tried.
    """

    target: str
    seed: int
    inputs: int
    accepted: int
    refused: int
    longest_turn_s: float
    p99_turn_s: float
    slow_turns: int
    busiest_turn_s: float
    grown_bytes: int
    failures: tuple[FuzzFailure, ...] = field(default=())
