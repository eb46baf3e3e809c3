"""What is measured, in parts that can be run alone; each measurement of a part is kept, and not made again."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.nvidia.program import Driver, GpuProgram, WatchedMemory, steps, wait
from eval.nvidia.searches import Searched, document, idle_s, searched, starts_s
from eval.nvidia.site import GIB, TURN_RATE, Site, fitting

WARM = 5
"""Iterations after which a program holds all of its memory, and its kernels are chosen."""
STILL_S = 0.2
"""For how long a program that is frozen is watched."""
MOST_LEFT = 0.1
"""The share of its memory that a program may leave on the GPU when it is checkpointed: measured by what is free there."""
MOVES = 3
ENDLESS = 10**6
TRIALS = 6
LIMIT = "16GiB"
"""Of the card's memory, as a node declares it: two trials of six gibibytes fit."""
HOST_LIMIT = "64GiB"
STARTED = 3
"""Trials whose starts are measured, one after another."""
POLICIES = ("fifo", "hermes", "convergence")

Figures = dict[str, Any]
"""Of a measurement; `failures` has what should not have been, in words."""
Measured = Callable[[Site, float], Figures]


@dataclass(frozen=True)
class Measurement:
    """One of a part. settings: what it is of, as plain JSON. measure: makes it until a monotonic time."""

    name: str
    settings: Mapping[str, Any]
    measure: Measured


@dataclass(frozen=True)
class GpuPart:
    """A part. about: what is measured, in words. on_stand_in: what a run on the stand-in shows of it, and what not."""

    about: str
    on_stand_in: str
    measurements: Callable[[Site], Sequence[Measurement]]


def held(site: Site, gib: float, until_s: float) -> Figures:
    """Freeze a program of a size, checkpoint it to the host, and restore it."""
    with tempfile.TemporaryDirectory(prefix="beamer-nvidia-") as folder, Driver(site) as driver:
        free = driver.free_bytes(until_s)
        with _trial(site, Path(folder), "held", ENDLESS, gib, until_s, small=True) as trial:
            held_bytes = free - driver.free_bytes(until_s)
            stop_s = trial.stop(until_s)
            before = trial.done
            _still(until_s)
            after = trial.done
            go_on_s = trial.go_on(until_s)
            out = {f"{call}_s": driver.call(call, trial.pid, until_s) for call in ("lock", "checkpoint")}
            left_bytes = free - driver.free_bytes(until_s)
            at = trial.done
            back = {f"{call}_s": driver.call(call, trial.pid, until_s) for call in ("restore", "unlock")}
            first_s = _first_s(trial, at, until_s)
    failures = [] if after == before else [f"a frozen program went on from iteration {before} to {after}"]
    if left_bytes > MOST_LEFT * held_bytes:
        failures.append(f"{left_bytes / GIB:.2f} of {held_bytes / GIB:.2f} GiB stayed on the GPU")
    sizes = {"held_gib": held_bytes / GIB, "left_gib": left_bytes / GIB}
    return {**sizes, "stop_s": stop_s, "go_on_s": go_on_s, **out, **back, "first_s": first_s, "failures": failures}


def bits(site: Site, until_s: float) -> Figures:
    """Train undisturbed, and with checkpoints and restores in between, and compare every loss."""
    iterations = site.sizes.bits
    with tempfile.TemporaryDirectory(prefix="beamer-nvidia-") as folder:
        expected = _undisturbed(site, Path(folder), iterations, 0.0, until_s)
        with Driver(site) as driver, _trial(site, Path(folder), "moved", iterations, 0.0, until_s) as trial:
            for move in range(1, MOVES + 1):
                trial.comes_to(move * iterations // (MOVES + 1), until_s)
                for call in ("lock", "checkpoint", "restore", "unlock"):
                    driver.call(call, trial.pid, until_s)
            trial.ends(until_s)
            found = steps(trial.trace)
    return {"iterations": iterations, "moves": MOVES, "last": found[iterations], "failures": differences("it", expected, found)}


def turns(site: Site, until_s: float) -> Figures:
    """Have trials take turns under a declared limit that two of them fit, and compare every loss with an undisturbed run's."""
    sizes = site.sizes
    with tempfile.TemporaryDirectory(prefix="beamer-nvidia-") as name:
        folder = Path(name)
        expected = _undisturbed(site, folder, sizes.turns, sizes.turn_gib, until_s)
        traces = {f"t{number}": folder / f"t{number}.trace" for number in range(1, TRIALS + 1)}
        trials = [{"name": trial, "rate": TURN_RATE, "trace": str(trace)} for trial, trace in traces.items()]
        content = document(site, "turns", trials, sizes.turns, sizes.turn_gib)
        node = {**content["nodes"][0], "gpu_memory": LIMIT, "host_memory": HOST_LIMIT}
        content |= {"nodes": [node], "memory": "auto"}
        with Driver(site) as driver, WatchedMemory(driver, until_s) as memory:
            run = searched(site, folder / "search", content, "round-robin", until_s, [f"quantum_s={sizes.quantum_s}"])
        memory.check()
        others = [text for trial, trace in traces.items() for text in differences(trial, expected, steps(trace))]
    # Each trial takes its memory once when it starts, and leaves it when it ends; all else was moved.
    out, back = (round(count / GIB / sizes.turn_gib) - TRIALS for count in (memory.freed, memory.taken))
    starts = list(starts_s(run.events).values())
    figures = {"trials": TRIALS, "gib": sizes.turn_gib, "limit": LIMIT, "out": out, "back": back, "starts_s": starts}
    failures = [*run.failures(finish=True), *others, *([] if out > 0 else ["nothing was moved to the host"])]
    return {**figures, "idle_s": idle_s(run.events), "wall_s": run.wall_s, "failures": failures}


def starts(site: Site, ahead: bool, until_s: float) -> Figures:
    """Run trials one after another, each started in its turn or ahead of it. The first one's start is always cold."""
    iterations = site.sizes.long if ahead else site.sizes.short
    with tempfile.TemporaryDirectory(prefix="beamer-nvidia-") as name:
        folder = Path(name)
        trials = [_configuration(folder, f"t{number}", TURN_RATE) for number in range(1, STARTED + 1)]
        content = {**document(site, "starts", trials, iterations), "prepare": ahead}
        run = searched(site, folder / "search", content, "fifo", until_s)
    found = list(starts_s(run.events).values())
    return {"starts_s": found[1:] if ahead else found, "wall_s": run.wall_s, "failures": run.failures(finish=True)}


def search(site: Site, policy: str, until_s: float) -> Figures:
    """Search eight learning rates until one reaches the target loss."""
    with tempfile.TemporaryDirectory(prefix="beamer-nvidia-") as name:
        folder = Path(name)
        trials = [_configuration(folder, f"rate-{rate:g}", rate) for rate in site.sizes.rates]
        content = document(site, "search", trials, site.sizes.iterations)
        content |= {"target_loss": site.sizes.target_loss, "stop_at_target": True}
        run: Searched = searched(site, folder / "search", content, policy, until_s)
    failures = run.failures(finish=False)
    if run.reached_s is None:
        failures.append(f"no trial reached a loss of {site.sizes.target_loss:g}")
    return {"reached_s": run.reached_s, "wall_s": run.wall_s, "failures": failures}


PARTS: Mapping[str, GpuPart] = {
    "checkpoint": GpuPart(
        "a program is frozen, checkpointed to the host and restored, by its size",
        "each call and what is free in between; what calls take is what the stand-in is told",
        lambda site: [
            Measurement(f"{size:g} GiB", {"gib": size}, _of(held, size)) for size in fitting(site.sizes.held_gib, site.card)
        ],
    ),
    "bits": GpuPart(
        f"a training with {MOVES} checkpoints and restores has the losses of an undisturbed one, to the last bit",
        "a training by NumPy, whose memory moves in name only",
        lambda site: [Measurement("training", {"iterations": site.sizes.bits}, bits)],
    ),
    "starts": GpuPart(
        "what a start takes from a trial's grant to its first line, cold and ahead of its turn",
        "the search and its journal; no CUDA context is made",
        lambda site: [
            Measurement("cold", {"iterations": site.sizes.short}, _of(starts, False)),
            Measurement("ahead", {"iterations": site.sizes.long}, _of(starts, True)),
        ],
    ),
    "search": GpuPart(
        "eight learning rates of a four-layer perceptron until one reaches the target loss, by policy",
        "the same rates of a small NumPy network",
        lambda site: [
            Measurement(
                policy,
                {"rates": site.sizes.rates, "iterations": site.sizes.iterations, "target_loss": site.sizes.target_loss},
                _of(search, policy),
            )
            for policy in POLICIES
        ],
    ),
    "turns": GpuPart(
        f"{TRIALS} trials in turns under a declared limit of {LIMIT} that two of them fit",
        "the search, its moves and its losses",
        lambda site: [
            Measurement(
                f"{TRIALS} trials",
                {"gib": site.sizes.turn_gib, "iterations": site.sizes.turns, "quantum_s": site.sizes.quantum_s},
                turns,
            )
        ],
    ),
}
"""By name, in the order in which they are run: what takes least and rests on nothing else first."""


def _of(measure: Callable[[Site, Any, float], Figures], value: Any) -> Measured:
    return lambda site, until_s: measure(site, value, until_s)


def _configuration(folder: Path, name: str, rate: float) -> dict[str, Any]:
    return {"name": name, "rate": rate, "trace": str(folder / f"{name}.trace")}


@contextmanager
def _trial(
    site: Site, folder: Path, name: str, iterations: int, gib: float, until_s: float, small: bool = False
) -> Iterator[GpuProgram]:
    """Start a program, and wait until it holds its memory."""
    arguments = site.program(str(TURN_RATE), str(iterations), str(folder / f"{name}.trace"), gib, small)
    with GpuProgram(site, folder, name, arguments) as trial:
        trial.comes_to(WARM, until_s)
        yield trial


def _undisturbed(site: Site, folder: Path, iterations: int, gib: float, until_s: float) -> dict[int, str]:
    with _trial(site, folder, "undisturbed", iterations, gib, until_s) as trial:
        trial.ends(until_s)
        return steps(trial.trace)


def _still(until_s: float) -> None:
    """Let time pass in which nothing is to happen."""
    over_s = time.monotonic() + STILL_S
    wait(lambda: time.monotonic() >= over_s, max(until_s, over_s), "a moment")


def _first_s(trial: GpuProgram, done: int, until_s: float) -> float:
    """Return the seconds from now to the next iteration."""
    begun_s = time.perf_counter()
    trial.comes_to(done + 1, until_s)
    return time.perf_counter() - begun_s


def differences(name: str, expected: Mapping[int, str], found: Mapping[int, str]) -> list[str]:
    """Return in how far the digests of a run are not those of the undisturbed one, in words."""
    other = [iteration for iteration, digest in expected.items() if found.get(iteration) != digest]
    if not other:
        return []
    return [f"{name}: {len(other)} of {len(expected)} losses are not those of the undisturbed run, the first at {min(other)}"]
