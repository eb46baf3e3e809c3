from pathlib import Path

import pytest

from hostagent.expiry.state import StateDirectory


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "h1")


def test_owned_interfaces_are_what_was_recorded_last(state: StateDirectory) -> None:
    assert state.owned() == frozenset()
    state.own({"e0", "e1"})
    assert StateDirectory(state.path).owned() == {"e0", "e1"}
    state.own(())
    assert state.owned() == frozenset()


def test_a_lock_has_one_holder(state: StateDirectory) -> None:
    assert not state.held("agent")
    holder = state.take("agent")
    assert holder is not None
    with holder:
        assert state.held("agent")
        assert state.take("agent", patience_s=0) is None
        assert not state.held("guard")
    assert not state.held("agent")
