"""What policies know of a job's future, beside what has been measured of it: nothing, or when it ends, or its target.

`tests/unit/eval/gpu/test_knowledge.py` finds out which policies decide otherwise where jobs state another
end, or another target.
"""

Knowledge = frozenset[str]
"""What a contender is told and uses: "the declared end", "the true end", "the target"; empty: nothing."""

IGNORES_END: frozenset[str] = frozenset({"drf", "fifo", "hermes", "k8s-default", "pollux", "round-robin", "tiresias"})
"""The policies that make no use of the iterations that jobs state. Of the others, `srtf`, `tetris`, `elastic` and `termination`
take them for the end, `ones` does until it has learnt from jobs that ended, `optimus` and `slaq` bound by them what they
predict."""

HEEDS_BOUND: frozenset[str] = frozenset({"convergence"})
"""The policies that make no use of them either where they are said to be a bound alone (`Request.known_end`)."""

USES_TARGET: frozenset[str] = frozenset({"convergence"})
"""The policies that use the loss at which a search has reached its goal."""


def knowledge(policy: str, end: str, target: bool, blind: bool) -> Knowledge:
    """Return what a policy knows of jobs that state `end`, or a bound alone (`blind`), and a target or none."""
    knows_end = policy not in IGNORES_END and not (blind and policy in HEEDS_BOUND)
    return frozenset(({end} if knows_end else set()) | ({"the target"} if target and policy in USES_TARGET else set()))


def shown(knowledge: Knowledge) -> str:
    """Return it in words."""
    return ", ".join(sorted(knowledge)) or "nothing"
