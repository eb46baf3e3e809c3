from controller.network.unmatched import UnmatchedBytes


def test_what_every_agent_has_counted_is_added_up() -> None:
    unmatched = UnmatchedBytes()
    for agent, trial, size in (("a", "s/t", 5), ("a", "s/t", 70), ("b", "s/t", 200), ("a", "s/u", 9)):
        unmatched.count(agent, trial, size)
    assert unmatched.by_trial() == {"s/t": 270, "s/u": 9}


def test_a_count_goes_on_or_begins_anew() -> None:
    unmatched = UnmatchedBytes()
    for size in (70, 70, 4, 4000, 0):  # at the next attempt with workers there all the time, after a gap, after a restart
        unmatched.count("a", "s/t", size)
    assert unmatched.by_trial() == {"s/t": 4070}


def test_a_trial_that_is_not_known_any_more_is_forgotten() -> None:
    unmatched = UnmatchedBytes()
    for agent, trial in (("a", "s/t"), ("b", "s/t"), ("b", "s/u")):
        unmatched.count(agent, trial, 5)
    unmatched.keep({"s/u"})
    assert unmatched.by_trial() == {"s/u": 5}
    unmatched.count("a", "s/t", 1)
    assert unmatched.by_trial() == {"s/t": 1, "s/u": 5}
