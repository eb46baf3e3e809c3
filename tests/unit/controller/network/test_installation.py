from controller.network.installation import LATENCY_SAMPLES, Installation


def test_everywhere_needs_every_switch_and_agent() -> None:
    installation = Installation(["s1"], ["h1", "h2"], generation=4)
    assert not installation.everywhere
    installation.switch_installed("s1", 4, 0.0)
    installation.agent_applied("h1", 4, 0.0)
    assert not installation.everywhere
    installation.agent_applied("h2", 4, 0.0)
    assert installation.everywhere


def test_who_has_nothing_to_change_is_up_to_date_unasked() -> None:
    installation = Installation(["s1"], ["h1", "h2"], generation=1)
    installation.switch_installed("s1", 1, 0.0)
    installation.agent_applied("h1", 1, 0.0)
    installation.agent_applied("h2", 1, 0.0)
    installation.want(2, False, ["h1"], [])
    assert (installation.switches, installation.agents) == ({"s1": 2}, {"h1": 1, "h2": 2})
    installation.want(3, True, [], [])
    assert (installation.switches, installation.agents) == ({"s1": 2}, {"h1": 1, "h2": 3})
    installation.agent_applied("h1", 2, 0.0)
    assert installation.agents == {"h1": 3, "h2": 3}
    assert not installation.everywhere
    installation.switch_installed("s1", 3, 0.0)
    assert installation.everywhere


def test_a_late_answer_to_what_was_replaced_counts_only_for_itself() -> None:
    installation = Installation([], ["h1"], generation=1)
    installation.want(2, False, ["h1"], [])
    installation.want(3, False, ["h1"], [])
    installation.agent_applied("h1", 2, 0.0)
    assert installation.agents == {"h1": 2}
    assert not installation.everywhere


def test_latency_runs_from_each_event_to_the_last_acknowledgement_of_its_own_generation() -> None:
    installation = Installation(["s1"], ["h1"], generation=1)
    installation.switch_installed("s1", 1, 0.0)
    installation.agent_applied("h1", 1, 0.0)
    installation.want(2, True, ["h1"], [10.0, 10.25])
    installation.want(3, True, [], [10.5])
    installation.switch_installed("s1", 2, 11.0)
    assert installation.plan_ms == ()
    installation.agent_applied("h1", 2, 12.0)
    assert installation.plan_ms == (2000.0, 1750.0)
    installation.switch_installed("s1", 3, 13.0)
    assert installation.plan_ms == (2000.0, 1750.0, 2500.0)


def test_events_that_change_nothing_take_no_time() -> None:
    installation = Installation(["s1"], ["h1"], generation=1)
    installation.want(2, False, [], [10.0])
    installation.switch_installed("s1", 1, 11.0)
    installation.agent_applied("h1", 1, 11.0)
    assert installation.everywhere
    assert installation.plan_ms == ()


def test_who_is_lost_is_not_installed_until_it_answers_again() -> None:
    installation = Installation(["s1"], ["h1"], generation=1)
    installation.switch_installed("s1", 1, 0.0)
    installation.agent_applied("h1", 1, 0.0)
    installation.switch_lost("s1")
    installation.agent_lost("h1")
    assert (installation.switches, installation.agents) == ({"s1": 0}, {"h1": 0})
    installation.switch_installed("s1", 1, 0.0)
    installation.agent_applied("h1", 1, 0.0)
    assert installation.everywhere


def test_switches_have_what_the_slowest_connected_one_has() -> None:
    installation = Installation(["s1", "s2"], [], generation=1)
    assert installation.on_switches == 1, "nobody to wait for"
    installation.switch_connected("s1")
    installation.switch_connected("s2")
    assert installation.on_switches == 0
    installation.switch_installed("s1", 1, 0.0)
    installation.switch_installed("s2", 1, 0.0)
    installation.want(2, True, [], [])
    installation.switch_installed("s1", 2, 0.0)
    assert installation.on_switches == 1
    installation.switch_lost("s2")
    assert installation.on_switches == 2


def test_what_waits_for_one_that_is_away_is_bounded() -> None:
    installation = Installation(["s1", "away"], ["h1"], generation=1)
    for generation in range(2, 2 * LATENCY_SAMPLES):
        installation.want(generation, True, ["h1"], [float(generation)])
    assert len(installation._waiting) == LATENCY_SAMPLES
    for name in ("s1", "away"):
        installation.switch_installed(name, generation, 1e9)
    installation.agent_applied("h1", generation, 1e9)
    assert len(installation.plan_ms) == LATENCY_SAMPLES


def test_nobody_waits_for_a_switch_that_can_hold_no_rules_and_it_is_never_installed() -> None:
    installation = Installation(["s1", "s2"], [], generation=1)
    for switch in ("s1", "s2"):
        installation.switch_connected(switch)
        installation.switch_installed(switch, 1, 0.0)
    installation.switch_able("s2", False)
    assert installation.switches == {"s1": 1, "s2": 0}
    assert not installation.everywhere
    installation.want(2, True, [], [])
    assert installation.on_switches == 1
    installation.switch_installed("s1", 2, 1.0)
    assert installation.on_switches == 2
    assert not installation.everywhere
    installation.switch_able("s2", True)
    assert installation.on_switches == 0
    installation.switch_installed("s2", 2, 2.0)
    assert installation.everywhere
