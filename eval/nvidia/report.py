"""What was measured: its file, its tables for docs/experiments/nvidia.md, and what should not have been."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from eval.committed import Committed
from eval.machine import Machine
from eval.nvidia.site import Card

NOT_RUN = "Not run on a GPU yet: there are no figures."
MARGIN = 1.15
"""How much longer than its transfers take at the rates of single programs a search may leave the GPU idle."""


@dataclass(frozen=True)
class Kept:
    """A measurement that was made. key: of what determines it. figures: as of `eval.nvidia.parts`."""

    key: str
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class NvidiaStudy:
    """What was measured on a card, by part and name. is_stand_in: whether there was no GPU."""

    card: Card
    is_stand_in: bool
    machine: Machine
    measured: Mapping[str, Mapping[str, Kept]]

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "NvidiaStudy":
        """Return the study that a file's content is of."""
        measured = {
            part: {name: Kept(one["key"], one["figures"]) for name, one in found.items()}
            for part, found in document["measured"].items()
        }
        return cls(Card(**document["card"]), document["is_stand_in"], Machine.from_json(document["machine"]), measured)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        measured = {part: {name: asdict(one) for name, one in found.items()} for part, found in self.measured.items()}
        card, machine = asdict(self.card), asdict(self.machine)
        return {"is_stand_in": self.is_stand_in, "card": card, "machine": machine, "measured": measured}

    def known(self, part: str, name: str, key: str) -> bool:
        """Return whether a measurement is here that was made of the same."""
        one = self.measured.get(part, {}).get(name)
        return one is not None and one.key == key

    def having(self, part: str, name: str, one: Kept) -> "NvidiaStudy":
        """Return it with a measurement more."""
        measured = {**self.measured, part: {**self.measured.get(part, {}), name: one}}
        return NvidiaStudy(self.card, self.is_stand_in, self.machine, measured)

    @property
    def seeds_in_words(self) -> str:
        """The seed of all trainings, in words."""
        return "0"

    def failures(self) -> list[str]:
        """Return what should not have been, in words."""
        found = [
            f"{part}, {name}: {text}"
            for part, several in self.measured.items()
            for name, one in several.items()
            for text in one.figures["failures"]
        ]
        return [*found, *([] if self.is_stand_in else self._idle())]

    def allowed_idle_s(self, turns: Mapping[str, Any]) -> float | None:
        """Return for how long the GPU may be idle while trials take turns; None: other parts that say so were not run.

        That is what the moves take at the rates of the single program of the nearest size, with a margin, and all starts.
        """
        sizes = [one.figures for one in self.measured.get("checkpoint", {}).values()]
        ahead = self.measured.get("starts", {}).get("ahead")
        if not sizes or ahead is None:
            return None
        near = min(sizes, key=lambda one: abs(one["held_gib"] - turns["gib"]))
        out_s = (near["lock_s"] + near["checkpoint_s"]) / near["held_gib"] * turns["gib"]
        back_s = (near["restore_s"] + near["unlock_s"]) / near["held_gib"] * turns["gib"]
        transfers_s = out_s * turns["out"] + back_s * turns["back"]
        return float(MARGIN * transfers_s + (turns["trials"] - 1) * median(ahead.figures["starts_s"]))

    def tables(self) -> dict[str, list[Table]]:
        """Return the tables by the name of their section; of a stand-in none, as its figures are no GPU's."""
        if self.is_stand_in:
            return {}
        made = [self._card(), self._checkpoints(), self._bits(), self._starts(), self._search(), self._turns()]
        return {"parts": [table for table in made if table.row_count]}

    def _of(self, part: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for name, one in self.measured.get(part, {}).items():
            yield name, one.figures

    def _idle(self) -> Iterator[str]:
        for name, figures in self._of("turns"):
            allowed_s = self.allowed_idle_s(figures)
            if allowed_s is not None and figures["idle_s"] > allowed_s:
                yield f"turns, {name}: the GPU was idle for {figures['idle_s']:.1f} s, expected at most {allowed_s:.1f} s"

    def _card(self) -> Table:
        made = _table("what it was run on", "GPU", "GiB", "driver", "CUDA", "PyTorch")
        made.add_row(self.card.name, f"{self.card.memory_gib:.0f}", self.card.driver, self.card.cuda, self.card.torch)
        return made

    def _checkpoints(self) -> Table:
        columns = ("SIGSTOP, ms", "lock, ms", "to the host, s", "GiB/s", "back, s", "GiB/s", "next iteration, ms")
        made = _table("one program, by the GPU memory that it holds", "GiB", *columns)
        for _, one in self._of("checkpoint"):
            rates = [f"{one['held_gib'] / one[name]:.1f}" for name in ("checkpoint_s", "restore_s")]
            cells = (f"{1000 * one['stop_s']:.2f}", f"{1000 * one['lock_s']:.0f}", f"{one['checkpoint_s']:.1f}", rates[0])
            back = (f"{one['restore_s']:.1f}", rates[1], f"{1000 * one['first_s']:.0f}")
            made.add_row(f"{one['held_gib']:.1f}", *cells, *back)
        return made

    def _bits(self) -> Table:
        made = _table("a training that is checkpointed and restored", "iterations", "times", "equal to the last bit")
        for _, one in self._of("bits"):
            made.add_row(str(one["iterations"]), str(one["moves"]), "no" if one["failures"] else "yes")
        return made

    def _starts(self) -> Table:
        made = _table("seconds from a grant to the first line", "start", "median", "all")
        for name, one in self._of("starts"):
            made.add_row(name, f"{median(one['starts_s']):.1f}", ", ".join(f"{each:.1f}" for each in one["starts_s"]))
        return made

    def _search(self) -> Table:
        made = _table("eight learning rates, one GPU", "policy", "target reached, s", "whole command, s")
        for name, one in self._of("search"):
            made.add_row(name, "not" if one["reached_s"] is None else f"{one['reached_s']:.1f}", f"{one['wall_s']:.1f}")
        return made

    def _turns(self) -> Table:
        columns = ("limit", "moved out", "moved back", "GPU idle, s", "at most, s", "equal to the last bit")
        made = _table("trials of a size in turns", "trials", "GiB each", *columns)
        for _, one in self._of("turns"):
            allowed_s = self.allowed_idle_s(one)
            moves = (str(one["out"]), str(one["back"]))
            idle = (f"{one['idle_s']:.1f}", "-" if allowed_s is None else f"{allowed_s:.1f}")
            made.add_row(str(one["trials"]), f"{one['gib']:g}", one["limit"], *moves, *idle, "no" if one["failures"] else "yes")
        return made


class NvidiaCommitted(Committed[NvidiaStudy]):
    """The committed figures; there may be none yet."""

    def sections(self, study: NvidiaStudy | None) -> dict[str, str]:
        """Return the text of the document's section; without a study that it was not run."""
        return super().sections(study) if study else {f"{self.command} parts": NOT_RUN}


COMMITTED = NvidiaCommitted("nvidia", "experiments/nvidia.md", NvidiaStudy.from_json)


def _table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    return made
