"""What the shipped trainer comes to when nothing disturbs it: what disturbed runs are held against."""

from collections.abc import Sequence

from beamer.testing.trainer import Options, State, apply, data, in_order, shard


def undisturbed(options: Options, worlds: Sequence[int]) -> list[tuple[float, str]]:
    """Return the loss that every step reports and the digest after it, of a run in one process.

    worlds: the number of ranks in each step.
    """
    state, samples = State.initial(options.seed), data(options.seed)
    steps = []
    for world in worlds:
        loss, _ = apply(state, options, in_order([shard(state, options, world, rank, samples) for rank in range(world)]))
        steps.append((loss, state.digest()))
    return steps


def undisturbed_digests(options: Options, worlds: Sequence[int]) -> list[str]:
    """Return the digest after every step of such a run."""
    return [digest for _, digest in undisturbed(options, worlds)]
