"""The search that is disturbed, and how it would end undisturbed: losses follow from learning rates alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from beamer.testing.trainer import Options
from eval.engines.program import FLAWS
from eval.engines.undisturbed import undisturbed

RANKS = 2
SLOTS = 4
"""GPUs: two jobs run at a time."""
MIN_RATE, MAX_RATE = 0.002, 0.3
SAVE_EVERY = 5


@dataclass(frozen=True)
class Sizes:
    """How large a search is and what it suffers.

    sound: configurations. rungs: iterations of each and how many go on. kills: ranks. port_share: of launches whose port is
    taken. retries, silent_s: of the search. start_s: before a program listens on its port. pause_s: per iteration.
    """

    sound: int
    rungs: tuple[tuple[int, int], ...]
    kills: int
    port_share: float
    retries: int
    silent_s: float
    start_s: float = 0.3
    pause_s: float = 0.01


FULL = Sizes(66, ((20, 16), (40, 4), (60, 1)), kills=50, port_share=0.35, retries=3, silent_s=8.0)
SMALL = Sizes(6, ((12, 2), (24, 1)), kills=4, port_share=0.35, retries=1, silent_s=5.0)


@dataclass(frozen=True)
class DisturbedSearch:
    """A search of sound configurations and one with each flaw. The last of the rungs keeps nobody: nothing follows it."""

    sizes: Sizes
    seed: int = 0
    _runs: dict[str, list[tuple[float, str]]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def rates(self) -> Mapping[str, float]:
        """The learning rates of the sound configurations, by name."""
        count = self.sizes.sound
        ratio = (MAX_RATE / MIN_RATE) ** (1.0 / max(count - 1, 1))
        order = [(17 * i + self.seed) % count for i in range(count)] if count % 17 else list(range(count))
        return {f"c{i:02d}": MIN_RATE * ratio**place for i, place in enumerate(order)}

    def content(self, directory: Path) -> dict[str, Any]:
        """Return the search as the content of its file. directory: of the traces."""
        sizes = self.sizes
        command: list[Any] = ["{python}", "-m", "eval.engines.program", "{flaw}", sizes.start_s]
        command += ["--iterations", "{iterations}", "--learning-rate", "{rate}", "--pause-s", sizes.pause_s]
        command += ["--save-every", SAVE_EVERY, "--trace", f"{directory}/{{name}}.trace"]
        configurations: list[dict[str, Any]] = [{"name": name, "rate": rate, "flaw": ""} for name, rate in self.rates.items()]
        # Flawed ones come between the others, so that none of them is first or last for all policies.
        for i, flaw in enumerate(FLAWS):
            configurations.insert((i + 1) * len(configurations) // (len(FLAWS) + 1), {"name": flaw, "rate": 0.1, "flaw": flaw})
        rungs = [{"iterations": iterations, "keep": keep} for iterations, keep in sizes.rungs]
        del rungs[-1]["keep"]
        return {
            "name": "s",
            "nodes": [{"name": "here", "gpus": SLOTS}],
            "job": {
                "command": command,
                "cwd": str(Path(__file__).parents[2]),
                "env": {"OPENBLAS_NUM_THREADS": 1},
                "request": {"gpus": RANKS, "batch_size": 64},
            },
            "configurations": configurations,
            "rungs": rungs,
            "retries": sizes.retries,
            "silent_s": sizes.silent_s,
        }

    def undisturbed(self, name: str, iterations: int) -> list[tuple[float, str]]:
        """Return what every step of a sound configuration comes to: the loss that it reports and the digest after it."""
        known = self._runs.setdefault(name, [])
        if len(known) < iterations:
            known[:] = undisturbed(Options(learning_rate=self.rates[name]), [RANKS] * iterations)
        return known[:iterations]

    @cached_property
    def targets(self) -> Mapping[str, int]:
        """The iterations that each sound configuration comes to, by name; those that come farthest are the best."""
        found = dict.fromkeys(self.rates, self.sizes.rungs[0][0])
        going_on = list(self.rates)
        for iterations, keep in self.sizes.rungs:
            found |= dict.fromkeys(going_on, iterations)
            going_on = sorted(going_on, key=lambda name: self.undisturbed(name, iterations)[-1][0])[:keep]
        return found

    @cached_property
    def winner(self) -> str:
        """The configuration that comes farthest, of several the one with the least last loss: as `ranked` of a search."""
        return min(self.targets, key=lambda name: (-self.targets[name], self.undisturbed(name, self.targets[name])[-1][0]))

    def differences(self, name: str, trace: Path) -> list[str]:
        """Return how a sound configuration has not ended as if undisturbed, in words.

        Steps that a killed run took since its checkpoint are taken again: with the same result.
        """
        expected = [digest for _, digest in self.undisturbed(name, self.targets[name])]
        try:
            lines = trace.read_text().splitlines()
        except FileNotFoundError:
            return [f"{name}: took no step"]
        steps = [json.loads(line) for line in lines if line.endswith("}")]  # A process may have been killed within a line.
        taken = {step["iteration"]: step["digest"] for step in steps}
        found = [f"{name}: step {i} is another" for i, digest in taken.items() if digest != (expected[i - 1 : i] or [""])[0]]
        missing = [i for i in range(1, len(expected) + 1) if i not in taken]
        return [*found, *([f"{name}: took no step {missing[0]} and {len(missing) - 1} more"] if missing else [])]
