"""`python -m eval nvidia`: what suspending, moving and starting trials takes on a GPU, in parts of at most four minutes.

Without a GPU the same paths are carried by a stand-in of the driver, and no figure is shown.
"""

import tempfile
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from beamer.errors import EngineError, InputError, nearest
from beamer.nvidia.inventory import Lack, NoGpus
from beamer.progress import work
from beamer.yaml_files import read_json
from eval.committed import print_tables
from eval.console import wide_console
from eval.machine import Machine
from eval.nvidia.parts import PARTS, Measurement
from eval.nvidia.program import OutOfTimeError
from eval.nvidia.report import COMMITTED, Kept, NvidiaStudy
from eval.nvidia.site import Site, found_gpu, gpu_site
from eval.origin import sources_digest
from eval.resume import digest, source_digest

OF_STAND_IN = ("eval.nvidia.stand_in", "eval.nvidia.stand_in_program")
PART_S = 240.0
"""What a part may take: a machine with a GPU is lent for minutes."""


def nvidia(
    parts: Annotated[list[str] | None, typer.Option("--part", help=f"Only this one; repeatable: {', '.join(PARTS)}.")] = None,
    stand_in: Annotated[bool, typer.Option("--stand-in", help="Use the stand-in of the driver, also where a GPU is.")] = False,
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="For all parts together.")] = 10.0,
    json_file: Annotated[
        Path,
        typer.Option("--json", help="Write every figure here; those that it holds are not measured again.", dir_okay=False),
    ] = Path("results/nvidia.json"),
    anew: Annotated[bool, typer.Option("--anew", help="Measure again what the file holds.")] = False,
    docs: Annotated[bool, typer.Option("--docs", help="Write the committed figures, and the docs' tables.")] = False,
) -> None:
    """Measure suspending, checkpoints, starts and searches on an NVIDIA GPU; ends with 1 where something does not hold.

    It also ends with 1 where no time was left for a measurement: the next run goes on with that.
    """
    until_s = time.monotonic() + 60 * minutes
    names = _chosen(parts or [])
    output = COMMITTED.output(docs, names == list(PARTS), json_file)
    console = wide_console()
    with ExitStack() as stack:
        site = _site(stand_in, stack, console)
        if docs and site.is_stand_in:
            raise InputError("--docs", "no GPU", "a machine with one, as the docs show no figures of a stand-in")
        run = PartsRun(site, output, console, NvidiaStudy(site.card, site.is_stand_in, Machine.here(), {}))
        if not anew:
            run.take_over()
        for name in names:
            run.part(name, min(until_s, time.monotonic() + PART_S))
    run.show(names)
    if docs:
        COMMITTED.renew(run.study)
    if run.failed or run.left or run.study.failures():
        raise typer.Exit(1)


@dataclass
class PartsRun:
    """One run of the command. failed, left: measurements that ended with an error, and those that no time was left for."""

    site: Site
    output: Path
    console: Console
    study: NvidiaStudy
    failed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def take_over(self) -> None:
        """Take what the file holds that was made of the same, on such a card, by the same sources."""
        if not self.output.exists():
            return
        before = NvidiaStudy.from_json(read_json(self.output, "the results"))
        for part, several in before.measured.items():
            for one in PARTS[part].measurements(self.site) if part in PARTS else ():
                if before.known(part, one.name, self._key(part, one)):
                    self.study = self.study.having(part, one.name, several[one.name])

    def part(self, name: str, until_s: float) -> None:
        """Make the measurements of a part that are missing, and write each as it ends. until_s: monotonic time."""
        for one in PARTS[name].measurements(self.site):
            key, label = self._key(name, one), f"{name}, {one.name}"
            if self.study.known(name, one.name, key):
                continue
            try:
                with work(label):
                    figures = one.measure(self.site, until_s)
            except OutOfTimeError as error:
                self.left.append(label)
                self.console.print(f"{label}: {error}", markup=False)
                continue
            except EngineError as error:
                self.failed.append(label)
                self.console.print(f"{label}: {error}", markup=False)
                continue
            self.study = self.study.having(name, one.name, Kept(key, figures))
            COMMITTED.write(self.study, self.output)

    def show(self, names: Collection[str]) -> None:
        """Print the tables, or what a stand-in has carried, and what is missing."""
        for name in names if self.site.is_stand_in else ():
            part = PARTS[name]
            whole, made = len(part.measurements(self.site)), len(self.study.measured.get(name, {}))
            text = f"{name}: {made} of {whole} ran on the stand-in ({part.on_stand_in}); skipped: every figure of a GPU"
            self.console.print(text, markup=False)
        print_tables(self.study, self.console)
        for text in self.study.failures():
            self.console.print(f"does not hold: {text}", markup=False)
        if self.left:
            self.console.print(f"not measured, as no time was left: {'; '.join(self.left)}: run it again to go on")
        self.console.print(f"{'what the stand-in was told' if self.site.is_stand_in else 'figures'}: {self.output}")

    def _key(self, part: str, one: Measurement) -> str:
        sources = [sources_digest(COMMITTED.command), *([source_digest(OF_STAND_IN)] if self.site.is_stand_in else [])]
        return digest(part, one.name, dict(one.settings), str(self.site.card), sources)


def _chosen(names: list[str]) -> list[str]:
    """Return the parts that are named in their order, all of them without names. Raises `InputError`."""
    for name in names:
        if name not in PARTS:
            raise InputError("--part", name, nearest(name, PARTS))
    return [name for name in PARTS if name in names or not names]


def _site(stand_in: bool, stack: ExitStack, console: Console) -> Site:
    """Return the GPU of this machine, or the stand-in where there is none, and say which."""
    gpu = NoGpus(Lack.GPU, "--stand-in") if stand_in else found_gpu()
    if not isinstance(gpu, NoGpus):
        site = gpu_site(gpu)
        console.print(str(site.card), markup=False)
        return site
    from eval.nvidia.stand_in import stand_in_site  # It is of the tests, which a machine with a GPU does not need.

    console.print(f"no GPU ({gpu.reason}): a stand-in of NVIDIA's driver carries the same paths", markup=False)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="beamer-stand-in-"))
    return stand_in_site(Path(folder) / "driver")
