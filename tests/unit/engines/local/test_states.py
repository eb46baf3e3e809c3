"""The states of a job, layer by layer: every one of a layer means something in the next."""

from beamer.engines.local.record import RUN_STATE
from beamer.engines.local.states import PHASE_AFTER, Phase, RanksState
from beamer.gpu.engine import RunState


def test_every_state_is_mapped_to_the_next_layer() -> None:
    assert set(PHASE_AFTER) == set(RanksState)
    assert set(RUN_STATE) == set(Phase)


def test_a_job_has_ended_in_all_layers_or_in_none() -> None:
    assert [state for state in RanksState if PHASE_AFTER[state] in (Phase.FINISHED, Phase.FAILED)] == [
        state for state in RanksState if state.is_finished
    ]
    assert [phase for phase in Phase if RUN_STATE[phase].is_finished] == [Phase.FINISHED, Phase.FAILED]


def test_what_is_live_or_transient_has_not_ended() -> None:
    assert not any(state.is_live and (state.is_finished or PHASE_AFTER[state]) for state in RanksState)
    assert not any(phase.is_transient and RUN_STATE[phase].is_finished for phase in Phase)
    assert not any(state.has_processes and state.is_finished for state in RunState)
    assert all(state.has_processes for state in RunState if state.is_computing)
