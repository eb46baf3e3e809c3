from controller.unmatched import UnmatchedBytes


def test_the_latest_count_of_every_agent_and_attempt_is_added_up() -> None:
    unmatched = UnmatchedBytes()
    unmatched.count("a", "s/t", attempt=1, size=5)
    unmatched.count("a", "s/t", attempt=1, size=70)
    unmatched.count("b", "s/t", attempt=1, size=200)
    unmatched.count("a", "s/t", attempt=4, size=3000)
    unmatched.count("a", "s/t", attempt=4, size=4000)
    unmatched.count("a", "s/t", attempt=6, size=0)
    unmatched.count("a", "s/u", attempt=2, size=9)
    assert unmatched.by_trial() == {"s/t": 4270, "s/u": 9}


def test_a_trial_that_is_not_known_any_more_is_forgotten() -> None:
    unmatched = UnmatchedBytes()
    unmatched.count("a", "s/t", attempt=1, size=5)
    unmatched.count("b", "s/t", attempt=1, size=5)
    unmatched.count("b", "s/u", attempt=2, size=7)
    unmatched.keep({"s/u"})
    assert unmatched.by_trial() == {"s/u": 7}
    unmatched.count("a", "s/t", attempt=3, size=1)
    assert unmatched.by_trial() == {"s/t": 1, "s/u": 7}
