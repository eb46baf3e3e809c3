"""Garbage on every socket, of the controller, of agents and of clients: the fuzzers, for so many inputs each."""

from collections.abc import Callable, Mapping

from eval.faults.base import Fault, FaultOutcome
from eval.fuzz.findings import SLOW_TURN_S, Findings
from eval.fuzz.targets import TARGETS

MAX_RUN_S = 1800.0  # All inputs have so long; they are counted, this only ends a run that makes no progress.


def outcome(findings: Findings) -> FaultOutcome:
    """Return findings as the outcome of a fault."""
    counts = {
        "refused": findings.refused,
        "accepted": findings.accepted,
        f"turns above {1000 * SLOW_TURN_S:.0f} ms": findings.slow_turns,
        "longest turn in ms": round(1000 * findings.longest_turn_s),
    }
    failures = tuple(f"{failure.what}: {' '.join(failure.data)}" for failure in findings.failures)
    return FaultOutcome(findings.inputs, counts=counts, failures=failures)


def _running(run: Callable[[float, int, int | None], Findings]) -> Callable[[int, int], FaultOutcome]:
    return lambda times, seed: outcome(run(MAX_RUN_S, seed, times))


ABOUT: Mapping[str, tuple[str, int]] = {
    "openflow": ("hostile OpenFlow peers beside a good switch", 1000),
    "http": ("hostile HTTP requests beside a good study", 5000),
    "agents": ("hostile host agents beside two good ones", 1000),
    "websocket": ("WebSocket frames against the protocol, beside two good agents", 1000),
    "attach": ("hostile processes at a host agent's Unix socket, beside a good worker", 5000),
    "agent-link": ("a hostile controller to a host agent, which answers well every other time", 1000),
    "client": ("a hostile controller to the client, which answers well afterwards", 1000),
}
"""By target: what is done, and how many inputs are tried."""

FAULTS = tuple(
    Fault(f"garbage-{name}", ABOUT[name][0], "not measured: nothing good is disturbed", _running(run), ABOUT[name][1])
    for name, run in TARGETS.items()
)
