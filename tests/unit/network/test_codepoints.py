"""Profiles of codepoints: in order, clear of what others use, and no two alike."""

import pytest

from beamer.errors import InputError
from beamer.network.codepoints import LOCAL, PROFILES, Codepoints
from beamer.network.plan import QUEUES

EXPEDITED = 46
ROCE_PRECEDENCE = 3


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_each_is_valid_and_of_the_pool_for_local_use(profile: Codepoints) -> None:
    profile.check(len(profile.classes))
    assert all(dscp & 0b11 == 0b11 for dscp in profile.all)
    assert profile.of(0) == profile.classes[0]
    with pytest.raises(InputError, match=r"class: got 8|class: got \d, expected 0 to"):
        profile.of(len(profile.classes))


@pytest.mark.parametrize("name", [name for name in PROFILES if name.startswith("precedence")])
def test_a_switch_that_ranks_by_precedence_serves_classes_in_their_order(name: str) -> None:
    profile = PROFILES[name]
    ranks = [dscp >> 3 for dscp in profile.classes]
    assert ranks == sorted(set(ranks), reverse=True)
    assert profile.acknowledgement >> 3 == ranks[0]
    assert max(ranks) < 6, "network control has the two precedences above"
    assert EXPEDITED not in profile.all
    assert min(ranks) == 0, "the last class shares a queue with what is not registered"
    assert (ROCE_PRECEDENCE in ranks) == (name == "precedence")


def test_the_local_profile_is_as_it_was() -> None:
    assert Codepoints((3, 11, 19, 27, 35, 43, 51, 59), 7) == LOCAL
    assert len(LOCAL.classes) == QUEUES


def test_what_no_network_can_have_is_refused() -> None:
    with pytest.raises(InputError, match="no two are equal"):
        Codepoints((3, 11), 11).check(1)
    with pytest.raises(InputError, match=r"queues: got 3, expected 1 to 2, as many classes as have a codepoint"):
        Codepoints((3, 11), 7).check(3)
