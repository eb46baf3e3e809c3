"""`python -m eval peers`: runs our policies inside other projects' simulators, beside the policies of those projects."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field, FiniteFloat, TypeAdapter

from beamer.errors import InputError, nearest
from beamer.yaml_files import read_yaml
from eval.config_section import ConfigSection
from eval.configured_policy import configured_policy
from eval.console import wide_console
from eval.peers.base import Peer
from eval.peers.contender import PeerContender, PeerRun
from eval.peers.environment import interpreter
from eval.peers.gavel.peer import GavelPeer
from eval.peers.pollux.peer import PolluxPeer
from eval.peers.results_file import PeerResults, read_results, write_results
from eval.peers.runs import PeerRuns

PEERS: Mapping[str, Peer] = {peer.name: peer for peer in (PolluxPeer(), GavelPeer())}
CONFIG = Path(__file__).parent.parent / "configs" / "peers.yaml"


class PeerConfig(ConfigSection):
    """What is run in a peer's simulator.

    work: what its generator of workloads is told. base: the title of the policy that ratios are to.
    """

    workloads: tuple[str, ...] = Field(min_length=1)
    seeds: int = Field(ge=1)
    first_seed: int
    nodes: int = Field(ge=1)
    gpus: int = Field(ge=1)
    interval_s: int = Field(ge=1)
    base: str
    work: dict[str, FiniteFloat] = Field(default_factory=dict)
    policies: tuple[PeerContender, ...] = Field(min_length=1)

    def run(self, peer: str, contender: PeerContender, workload: str, seed: int, original: bool) -> PeerRun:
        """Return a run on these settings."""
        return PeerRun(
            peer=peer,
            workload=workload,
            contender=contender,
            seed=seed,
            nodes=self.nodes,
            gpus=self.gpus,
            interval_s=self.interval_s,
            work=self.work,
            original=original,
        )

    def settings(self, original: bool) -> dict[str, Any]:
        """Return what all runs have in common."""
        return {**self.model_dump(include={"nodes", "gpus", "interval_s", "work"}), "original": original}

    def contenders(self, only: str) -> tuple[PeerContender, ...]:
        """Return those whose titles contain `only`, the base first if it is among them. Raises `InputError` if none does."""
        titles = [one.title for one in self.policies]
        if len(set(titles)) < len(titles):
            raise InputError("policies", titles, "each once")
        if self.base not in titles:
            raise InputError("base", self.base, nearest(self.base, titles))
        chosen = [one for one in self.policies if only in one.title]
        if not chosen:
            raise InputError("--policies", only, f"a part of one of {', '.join(titles)}")
        return tuple(sorted(chosen, key=lambda one: one.title != self.base))

    @property
    def base_contender(self) -> PeerContender:
        """The policy that ratios are to."""
        return next(one for one in self.policies if one.title == self.base)


def read(path: Path = CONFIG) -> dict[str, PeerConfig]:
    """Return a config file's peers by name, their policies of ours and what their generators are told checked."""
    document = read_yaml(path, "--config")
    if not isinstance(document, dict):
        raise InputError("--config", str(path), f"a YAML file with a part for each of {', '.join(PEERS)}")
    config = TypeAdapter(dict[str, PeerConfig]).validate_python(document)
    for name, one in config.items():
        if name not in PEERS:
            raise InputError(name, "a part of the config", nearest(name, PEERS))
        if set(one.work) != set(PEERS[name].work):
            raise InputError(f"{name}.work", dict(one.work), ", ".join(PEERS[name].work) or "nothing")
        for contender in one.policies:
            for parameter, value in contender.parameters.items():
                try:
                    json.dumps(value, allow_nan=False)
                except ValueError as error:
                    expected = "finite numbers, as a run's parameters are kept as JSON"
                    raise InputError(f"{name}.policies: {contender.policy}.{parameter}", value, expected) from error
            if not contender.own:
                configured_policy(contender.policy, contender.parameters)
    return config


def peers(
    pollux: Annotated[
        Path | None, typer.Option(help="Checkout of petuum/adaptdl, branch osdi21-artifact, or its `simulator`.", metavar="DIR")
    ] = None,
    gavel: Annotated[
        Path | None, typer.Option(help="Checkout of stanford-futuredata/gavel, or its `scheduler`.", metavar="DIR")
    ] = None,
    config_file: Annotated[Path, typer.Option("--config", help="The study's config.", exists=True, dir_okay=False)] = CONFIG,
    workloads: Annotated[str, typer.Option(help="Other workloads than the config says, with commas between.")] = "",
    seeds: Annotated[int | None, typer.Option(min=1, help="Fewer seeds than the config says, or more.")] = None,
    policies: Annotated[
        str, typer.Option(help="Only policies whose titles contain this; ratios are to the base if it has run.")
    ] = "",
    python: Annotated[
        Path | None,
        typer.Option(help="Interpreter that has the peer's packages; without it, one is made.", exists=True, dir_okay=False),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 2,
    original: Annotated[
        bool, typer.Option("--original", help="Leave the peer's libraries as they are, though equal functions take less time.")
    ] = False,
    cache: Annotated[Path, typer.Option(help="Finished runs and interpreters are kept here.")] = Path("results/peers"),
    json_file: Annotated[
        Path,
        typer.Option("--json", help="Write every run's figures here; runs that it holds are kept, not made again."),
    ] = Path("results/peers.json"),
) -> None:
    """Compare our policies with those of other projects inside the simulators of these projects."""
    folders = {PolluxPeer.name: pollux, GavelPeer.name: gavel}
    given = [(peer, folder) for name, peer in PEERS.items() if (folder := folders[name])]
    if not given:
        raise InputError("--pollux, --gavel", None, "the folder of a checkout, for one of them at least")
    if python and len(given) > 1:
        raise InputError("--python", str(python), "one peer at a time, as each has its own packages")
    found = [(peer, peer.find(folder)) for peer, folder in given]
    config = read(config_file)
    cache = cache.absolute()  # runs have another working folder
    console = wide_console()
    before = read_results(json_file)
    outcomes: dict[str, PeerResults] = {}
    started = time.perf_counter()
    for peer, folder in found:
        if peer.name not in config:
            raise InputError("--config", str(config_file), f"a part {peer.name!r}")
        chosen = config[peer.name]
        names = tuple(filter(None, workloads.split(","))) or chosen.workloads
        for name in names:
            peer.check_workload(folder, name)
        contenders = chosen.contenders(policies)
        drawn = range(chosen.first_seed, chosen.first_seed + (seeds or chosen.seeds))
        asked = [
            chosen.run(peer.name, contender, workload, seed, original)
            for contender in contenders
            for workload in names
            for seed in drawn
        ]
        held = before[peer.name].runs if peer.name in before else {}
        earlier = {
            chosen.run(peer.name, contender, workload, seed, original): one
            for contender, several in held.items()
            if contender in chosen.policies
            for (workload, seed), one in several.items()
        }
        known = {one.key: one for one in earlier.values()}
        runs = PeerRuns(peer, folder, interpreter(peer, cache, python and python.absolute()), cache / "runs", known)
        results = runs.all(asked, processes, console)
        kept = runs.still(earlier) | results
        base = chosen.base_contender
        compared = [chosen.run(peer.name, base, workload, seed, original) for workload in names for seed in drawn]
        shown = results | {run: kept[run] for run in compared} if kept.keys() >= set(compared) else results
        common = peer.title, peer.content(folder), chosen.settings(original), chosen.policies
        for table in PeerResults.of(*common, _reference(base, contenders, shown), shown).tables():
            console.print(table)
        outcomes[peer.name] = PeerResults.of(*common, _reference(base, contenders, kept), kept)
        write_results(json_file, outcomes)
    console.print(f"{time.perf_counter() - started:.0f} s   figures: {json_file}   runs: {cache}/runs")


def _reference(base: PeerContender, contenders: Sequence[PeerContender], runs: Collection[PeerRun]) -> PeerContender:
    """Return the policy that ratios are to: the base, or the first that was run where no run of the base is known."""
    return base if any(run.contender == base for run in runs) else contenders[0]
