"""Policies by name: Beamer's own, and those of other packages, wherever a name is taken."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from beamer.decision.policy import Stateless
from beamer.decision.registry import PolicyRegistry
from beamer.errors import InputError
from beamer.gpu.policies import GPU_POLICIES, gpu_policy
from beamer.gpu.policy import GpuPolicy
from beamer.network.policies import NETWORK_POLICIES, network_policy
from beamer.network.policies.fair import Fair
from beamer.network.policies.fifo import Fifo
from beamer.network.policy import NetworkPolicy
from beamer.testing.gpu_policies import GPU_POLICY_CHECKS
from beamer.testing.network_policies import NETWORK_POLICY_CHECKS
from tests.support.checkout import ROOT
from tests.support.documented import install
from topologies import single

GROUP = "beamer.network_policies"


class Other(Fair):
    """Another package's policy."""

    name = "other"


class Unnamed(Fair):
    """A policy that its package registers under another name than its own."""


class Abstract(NetworkPolicy[Stateless]):
    """A policy without its method."""

    name = "other"
    State = Stateless


class Remembering(Fair):
    """A policy whose state the journal cannot keep."""

    name = "other"
    State = dict


@dataclass(frozen=True)
class Demanding(Fair):
    """A policy with a parameter that has no default, and one that nobody gives."""

    name = "other"
    window_s: float
    windows: int = field(init=False, default=1)


def registry(monkeypatch: pytest.MonkeyPatch, **values: str) -> PolicyRegistry[NetworkPolicy[Any]]:
    found = [EntryPoint(name.replace("_", "-"), value, GROUP) for name, value in values.items()]

    def entry_points(group: str) -> list[EntryPoint]:
        return found if group == GROUP else []

    monkeypatch.setattr("beamer.entry_points.entry_points", entry_points)
    return PolicyRegistry(GROUP, NetworkPolicy, (Fair, Fifo))  # type: ignore[type-abstract]  # the seam itself


def test_others_come_after_ones_own_and_are_made_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    found = registry(monkeypatch, other=f"{__name__}:Other", fair="nowhere:Fair")
    assert list(found) == ["fair", "fifo", "other"]
    assert len(found) == 3
    assert found["fair"] is Fair, "a name of Beamer's cannot be taken"
    assert isinstance(found.make("other"), Other)
    assert "lifo" not in found


def test_an_unknown_name_is_answered_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"policy: got 'othr', expected one of fair, fifo, other \(did you mean 'other'\?\)"):
        registry(monkeypatch, other=f"{__name__}:Other").make("othr")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nowhere:Policy", "expected a class that can be imported"),
        (f"{__name__}:GROUP", "expected a subclass of beamer.network.policy.NetworkPolicy"),
        (f"{__name__}:registry", "expected a subclass of beamer.network.policy.NetworkPolicy"),
        (f"{__name__}:Unnamed", "got 'fair', expected the name 'other'"),
        (f"{__name__}:Abstract", r"expected a class that is not abstract \(it does not define order\)"),
        (f"{__name__}:Remembering", "expected a class whose State is a dataclass, not <class 'dict'>"),
    ],
)
def test_a_package_that_brings_no_policy_is_named(monkeypatch: pytest.MonkeyPatch, value: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        registry(monkeypatch, other=value).make("other")
    assert caught.value.field == f"entry point {GROUP}:other"


@pytest.mark.parametrize(("make", "name"), [(gpu_policy, "hermes"), (gpu_policy, "fifo"), (network_policy, "beamer")])
def test_parameters_that_do_not_exist_are_refused(make: Callable[..., object], name: str) -> None:
    with pytest.raises(InputError) as caught:
        make(name, windows=3)
    assert caught.value.field == f"{name}.windows"


def test_parameters_without_a_default_have_to_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    found = registry(monkeypatch, other=f"{__name__}:Demanding")
    with pytest.raises(InputError, match=r"other\.window_s: got None, expected a value"):
        found.make("other")
    with pytest.raises(InputError, match=r"other\.windows: got 2, expected one of window_s"):
        found.make("other", windows=2)
    assert found.make("other", window_s=2.0) == Demanding(2.0)


def test_every_policy_is_registered_under_its_name() -> None:
    for policies in (NETWORK_POLICIES, GPU_POLICIES):
        assert all(policy.name == name for name, policy in policies.items())
        assert len(policies) > 10


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install the package of the documentation's example for processes that are started from here; return its policy's name."""
    (name,) = install("Your own network policy", tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    return name


def test_the_documented_policy_is_simulated_by_its_name(documented: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "beamer.cli", "simulate", "--policies", f"fair,{documented}", "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert [run["policy"] for run in json.loads(figures.read_text())["runs"]] == ["fair", documented]


def test_the_documented_policy_conforms(documented: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    policy = PolicyRegistry(GROUP, NetworkPolicy, ()).make(documented)  # type: ignore[type-abstract]  # the seam itself
    for check in NETWORK_POLICY_CHECKS:
        check(policy)


def test_the_documented_gpu_policy_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = install("Your own GPU policy", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    policy = PolicyRegistry("beamer.gpu_policies", GpuPolicy, ()).make(name)  # type: ignore[type-abstract]  # the seam itself
    for check in GPU_POLICY_CHECKS:
        check(policy)


def test_the_controller_takes_the_documented_policy(documented: str, tmp_path: Path) -> None:
    """It comes as far as the journal, which is the next thing that can be wrong."""
    fabric = tmp_path / "fabric.json"
    fabric.write_text(json.dumps(single.build(2).to_dict()))
    shared = ["--fabric", str(fabric), "--journal", "sqlite:////nowhere/journal.db", "--http", "127.0.0.1:0"]

    def refusal(policy: str) -> str:
        command = [sys.executable, "-m", "controller.cli", *shared, "--policy", policy]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 2
        return done.stderr

    assert f"did you mean {documented!r}" in refusal(f"{documented}-")
    assert "the journal /nowhere/journal.db cannot be opened" in refusal(documented)
