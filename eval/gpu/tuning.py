"""Parameters of policies, chosen by claim on seeds of their own, with the same number of runs for every policy at most.

`eval/configs/gpu-tuning.yaml` lists the settings that are tried beside the defaults; the best mean of a claim's first metric on
the claim's stated cell is taken. `python -m eval gpu --tune` writes the choice to `eval/results/gpu-tuning.json`, which the
claims' tables use.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field
from rich.table import Table

from beamer.errors import InputError, nearest
from beamer.yaml_files import read_json, read_yaml
from eval.config_section import ConfigSection
from eval.gpu.claim import contenders
from eval.gpu.claims import Claim, GpuContender, Inputs
from eval.gpu.study import Run, Runner
from eval.json_lines import json_lines

CONFIG = Path(__file__).parent.parent / "configs" / "gpu-tuning.yaml"
CHOSEN = Path(__file__).parent.parent / "results" / "gpu-tuning.json"
LEVELS = 3  # of the file that have a line per entry


class ClaimTuning(ConfigSection):
    """cell: that settings are compared on. policies: settings of each beside its defaults."""

    cell: str
    policies: dict[str, tuple[dict[str, Any], ...]]


class TuningConfig(ConfigSection):
    """The budget. most_settings: of a policy, the defaults among them. Seeds are none of the tables'."""

    seeds: int = Field(ge=2)
    first_seed: int
    most_settings: int
    claims: dict[str, ClaimTuning]


class TriedSetting(ConfigSection):
    """parameters: beside the defaults. mean: of the claim's first metric, over the seeds."""

    parameters: dict[str, Any]
    mean: float


class TunedPolicy(ConfigSection):
    """What was tried for a policy, and the parameters that did best."""

    chosen: dict[str, Any]
    runs: int
    tried: tuple[TriedSetting, ...]


class Tuned(ConfigSection):
    """By claim and policy. seeds: that settings were compared on."""

    seeds: tuple[int, ...]
    claims: dict[str, dict[str, TunedPolicy]]

    def chosen(self, claim: str) -> dict[str, dict[str, Any]]:
        """Return the chosen parameters of a claim, by policy."""
        return {policy: one.chosen for policy, one in self.claims.get(claim, {}).items()}

    def applied(self, claim: Claim) -> Claim:
        """Return a claim whose compared policies have the parameters chosen for them; their names in tables stay."""
        chosen = self.chosen(claim.name)
        policies = [
            one.model_copy(update={"label": one.name, "parameters": {**one.parameters, **chosen[one.policy]}})
            if one.policy in chosen
            else one
            for one in contenders(claim.policies)
        ]
        return claim.model_copy(update={"policies": tuple(policies)})

    def table(self, claim: Claim) -> Table:
        """Return what was tried and chosen for a claim's policies; those that are not listed have nothing to choose."""
        table = Table(
            title=f"{claim.title}: parameters, chosen on seeds {self.seeds[0]} to {self.seeds[-1]}", title_justify="left"
        )
        for column in ("policy", "settings", "runs", "chosen", "to the defaults"):
            table.add_column(column, overflow="fold")
        for policy, one in self.claims.get(claim.name, {}).items():
            best = min(tried.mean for tried in one.tried)
            counts = (str(len(one.tried)), str(one.runs))
            table.add_row(policy, *counts, in_words(one.chosen) or "the defaults", f"{best / one.tried[0].mean:.2f}")
        return table


def in_words(parameters: Mapping[str, Any]) -> str:
    """Return parameters as tables show them."""
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def read(path: Path = CONFIG) -> TuningConfig:
    """Return the budget of a config file."""
    return TuningConfig.model_validate(read_yaml(path, "the budget"))


def read_chosen(path: Path = CHOSEN) -> Tuned:
    """Return what was chosen; nothing where there is no such file."""
    return Tuned.model_validate(read_json(path, "the results")) if path.exists() else Tuned(seeds=(), claims={})


def settings(claim: Claim, config: ClaimTuning, policy: str) -> list[tuple[dict[str, Any], GpuContender]]:
    """Return the parameters to try for a policy, the defaults first, each with the contender that has them.

    The contender is the one of the policy's own name, else the first of the policy.
    """
    if config.cell not in claim.cells():
        raise InputError("cell", config.cell, nearest(config.cell, claim.cells()))
    of_policy = [one for one in contenders(claim.policies) if one.policy == policy]
    if not of_policy:
        raise InputError("policies", policy, nearest(policy, [one.policy for one in contenders(claim.policies)]))
    first = next((one for one in of_policy if one.name == policy), of_policy[0])
    found = []
    for parameters in ({}, *config.policies[policy]):
        found.append((parameters, first.model_copy(update={"parameters": {**first.parameters, **parameters}})))
        found[-1][1].build()  # raises where a parameter does not exist
    return found


def tune(claim: Claim, config: TuningConfig, runner: Runner, inputs: Inputs) -> dict[str, TunedPolicy]:
    """Return the best parameters of the policies that a claim's budget lists."""
    ours = config.claims[claim.name]
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    tried = {policy: settings(claim, ours, policy) for policy in ours.policies}
    runs = [Run(claim, ours.cell, one, seed) for several in tried.values() for _, one in several for seed in seeds]
    figures = iter(runner.run(runs, inputs, f"tuning, {claim.name}"))
    metric = claim.metrics[0].key
    found = {}
    for policy, several in tried.items():
        means = [fmean(next(figures)[metric] for _ in seeds) for _ in several]
        best = min(range(len(several)), key=means.__getitem__)
        found[policy] = TunedPolicy(
            chosen=several[best][0],
            runs=len(several) * len(seeds),
            tried=tuple(TriedSetting(parameters=one[0], mean=mean) for one, mean in zip(several, means, strict=True)),
        )
    return found


def write(config: TuningConfig, found: Mapping[str, Mapping[str, TunedPolicy]], path: Path = CHOSEN) -> None:
    """Write what was chosen; claims that were not tuned now keep what they had."""
    seeds = tuple(range(config.first_seed, config.first_seed + config.seeds))
    before = read_chosen(path)
    kept = before.claims if before.seeds == seeds else {}
    tuned = Tuned(seeds=seeds, claims={**kept, **{name: dict(one) for name, one in found.items()}})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_lines(tuned.model_dump(mode="json"), LEVELS))


def check_budget(config: TuningConfig, seeds: Sequence[int]) -> None:
    """Check that no policy has more settings than the budget, and that no seed is one of the tables'. Raises `InputError`."""
    for name, claim in config.claims.items():
        for policy, several in claim.policies.items():
            if len(several) + 1 > config.most_settings:
                raise InputError(f"claims.{name}.policies.{policy}", several, f"{config.most_settings - 1} settings at most")
    if set(range(config.first_seed, config.first_seed + config.seeds)) & set(seeds):
        raise InputError("first_seed", config.first_seed, "seeds that are none of the tables'")
