"""The time that the replay of a whole trace takes under each policy."""

from pathlib import Path

from rich.table import Table

from beamer.network.allocation import Allocator, Classes, EqualSplit, Greedy, Madd, MaxMin
from beamer.network.policies import network_policy
from beamer.sim.replay import replay
from beamer.sim.traces import Trace, read

RATE_BPS = 1.048576e9  # 1 MiB in 8 ms
PAIRS: tuple[tuple[str, Allocator], ...] = (
    ("fair", MaxMin()),
    ("fair", EqualSplit()),
    ("fifo", Greedy()),
    ("fifo-lm", Classes(queues=None)),
    ("scf", Greedy()),
    ("ncf", Greedy()),
    ("lcf", Greedy()),
    ("sebf", Greedy()),
    ("sebf", Madd()),
    ("aalo", Greedy()),
    ("sincronia-event", Greedy()),
    ("sincronia-offline", Greedy()),
    ("sincronia", Greedy()),
    ("beamer", Greedy()),
    ("beamer-stage", Greedy()),
)


def trace_table(path: Path) -> Table:
    """Return a table with a row per policy; the first is the baseline of the times."""
    trace = read(path, "coflow-benchmark")
    few = Trace(trace.ports, trace.coflows[:20])
    for policy, by in PAIRS:
        replay(few, RATE_BPS, network_policy(policy), by)  # This compiles and imports what the policy needs.
    table = Table(title=f"{path.name} on ports of {RATE_BPS / 1e9:g} Gbit/s", title_justify="left")
    for column in ("policy", "allocator", "mean CCT", "p50", "p95", "wall", "against the first", "decisions"):
        table.add_column(column, justify="left" if column in ("policy", "allocator") else "right")
    base = None
    for policy, by in PAIRS:
        run = replay(trace, RATE_BPS, network_policy(policy), by)
        base = base or run.wall_s
        times = (run.mean_cct_s, run.quantile_cct_s(0.5), run.quantile_cct_s(0.95))
        cells = (*(f"{1e3 * t:.1f} ms" for t in times), f"{run.wall_s:.1f} s", f"{run.wall_s / base:.2f}", str(run.decisions))
        table.add_row(policy, by.name, *cells)
    return table
