"""`python -m eval nvidia`: what it resumes, skips and refuses, with parts that measure nothing."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from beamer.errors import EngineError, InputError, PlatformError
from beamer.nvidia.inventory import Gpu, Lack, NoGpus
from eval.__main__ import COMMANDS
from eval.nvidia import command, site
from eval.nvidia.parts import PARTS, Figures, GpuPart, Measurement
from eval.nvidia.program import OutOfTimeError
from eval.nvidia.site import FULL, Card, GpuSite, Site

GPU = Gpu(0, "GPU-1", "NVIDIA H200", 140 << 30, 140 << 30)
GOOD = {"iterations": 4, "moves": 3, "last": "3f", "failures": []}


class Measured:
    """A part of two measurements, and how often each was made."""

    def __init__(self, **outcomes: Figures | Exception) -> None:
        self.outcomes = outcomes
        self.made: list[str] = []

    def part(self) -> GpuPart:
        return GpuPart("nothing", "the path", lambda site: [Measurement(name, {}, self._of(name)) for name in self.outcomes])

    def _of(self, name: str) -> Any:
        def measure(site: Site, until_s: float) -> Figures:
            assert 0 < until_s - time.monotonic() <= command.PART_S
            self.made.append(name)
            outcome = self.outcomes[name]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return measure


@pytest.fixture(autouse=True)
def at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "sources_digest", lambda table: "sources")


def run(monkeypatch: pytest.MonkeyPatch, measured: Measured, *arguments: str, is_stand_in: bool = False) -> Result:
    card = Card("NVIDIA H200", 140.0, "580", "13.0", "2.11.0")
    made = GpuSite(card, "GPU-1", FULL, is_stand_in, {})
    monkeypatch.setattr(command, "_site", lambda *_: made)
    monkeypatch.setattr(command, "PARTS", {"bits": measured.part()})
    app = typer.Typer()
    app.command()(command.nvidia)
    return CliRunner().invoke(app, [*arguments, "--json", "n.json"])


def figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("n.json").read_text())
    return found


def test_what_is_in_the_file_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured(one=GOOD, two=OutOfTimeError("no time was left"))
    done = run(monkeypatch, measured)
    assert done.exit_code == 1
    assert "bits, two: no time was left" in done.output
    assert "run it again to go on" in done.output
    assert list(figures()["measured"]["bits"]) == ["one"]
    measured.outcomes["two"] = GOOD
    done = run(monkeypatch, measured)
    assert (done.exit_code, measured.made) == (0, ["one", "two", "two"])
    assert list(figures()["measured"]["bits"]) == ["one", "two"]
    assert run(monkeypatch, measured, "--anew").exit_code == 0
    assert measured.made[3:] == ["one", "two"]


def test_figures_of_other_sources_or_another_card_are_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured(one=GOOD)
    run(monkeypatch, measured)
    monkeypatch.setattr(command, "sources_digest", lambda table: "other")
    run(monkeypatch, measured)
    monkeypatch.setattr(command, "source_digest", lambda modules: "")
    run(monkeypatch, measured, is_stand_in=True)
    assert measured.made == ["one"] * 3
    assert figures()["is_stand_in"]


def test_a_measurement_that_fails_is_said_and_the_others_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Measured(one=EngineError("the driver refuses"), two={**GOOD, "failures": ["a loss is another"]})
    done = run(monkeypatch, measured)
    assert done.exit_code == 1
    assert "bits, one: the driver refuses" in done.output
    assert "does not hold: bits, two: a loss is another" in done.output
    assert list(figures()["measured"]["bits"]) == ["two"], "what failed is measured again"


def test_of_a_stand_in_it_is_said_what_ran_and_no_figure_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, Measured(one=GOOD), is_stand_in=True)
    assert done.exit_code == 0
    assert "bits: 1 of 1 ran on the stand-in (the path); skipped: every figure of a GPU" in done.output
    assert "equal to the last bit" not in done.output
    assert "equal to the last bit" in run(monkeypatch, Measured(one=GOOD)).output


def test_docs_need_a_gpu_and_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, Measured(one=GOOD), "--docs", is_stand_in=True)
    assert isinstance(done.exception, InputError)
    assert "a machine with one" in str(done.exception)
    monkeypatch.setattr(command, "PARTS", PARTS)
    with pytest.raises(InputError, match="did you mean 'bits'"):
        command._chosen(["bit"])
    assert command._chosen(["turns", "bits"]) == ["bits", "turns"]
    assert command._chosen([]) == list(PARTS)


def test_a_gpu_that_cannot_be_used_is_no_reason_for_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = NoGpus(Lack.PACKAGE, "the package nvidia-ml-py is not installed")
    monkeypatch.setattr(site, "open_nvml", lambda: missing)
    monkeypatch.setattr(site, "DEVICE_FILE", tmp_path / "nvidiactl")
    assert site.found_gpu() == missing
    (tmp_path / "nvidiactl").touch()
    with pytest.raises(PlatformError, match="nvidia-ml-py is not installed"):
        site.found_gpu()
    monkeypatch.setattr(site, "_versions", lambda: ("2.13.0+cpu", "", False))
    with pytest.raises(PlatformError, match=r"PyTorch 2\.13\.0\+cpu finds no GPU"):
        site.gpu_site(GPU)
    monkeypatch.setattr(site, "_versions", lambda: ("2.11.0", "13.0", True))
    monkeypatch.setattr(site, "BINDINGS", "no-such-bindings")
    with pytest.raises(PlatformError, match="the package no-such-bindings is missing"):
        site.gpu_site(GPU)


def test_the_command_is_listed_as_it_says() -> None:
    assert command.nvidia.__doc__
    assert command.nvidia.__doc__.startswith(COMMANDS["nvidia"].help)


def test_the_search_is_that_of_the_docs() -> None:
    assert (len(FULL.rates), FULL.iterations, FULL.target_loss) == (8, 500, 0.75)
