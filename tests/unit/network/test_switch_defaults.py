"""Each maker's default with each profile: in order, never lossless and never control, or refused with the reason."""

import pytest

from beamer.network.codepoints import LOCAL, PRECEDENCE, PRECEDENCE_ROCE, PROFILES, Codepoints
from beamer.network.switch_defaults import SWITCH_DEFAULTS, SwitchDefault, default_order

BY_NAME = {default.name: default for default in SWITCH_DEFAULTS}
ALLIED, SONIC = BY_NAME["Allied Telesis AT-8100, AT-FS970M"], BY_NAME["SONiC, map AZURE"]


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
@pytest.mark.parametrize("default", SWITCH_DEFAULTS, ids=lambda default: default.name)
def test_what_keeps_the_order_does_and_all_else_has_a_reason(default: SwitchDefault, profile: Codepoints) -> None:
    assert len(default.queues) == 64
    assert default.source
    found = default_order(default, profile)
    queues = [default.queues[dscp] for dscp in profile.classes]
    assert found.keeps_order == (not found.reason)
    if found.keeps_order:
        assert queues == sorted(queues, reverse=True)
        assert not {*queues} & (default.lossless | default.control)
        assert default.queues[profile.acknowledgement] == max(queues)
        assert found.ranks == len({*queues}) > 1


def test_switches_that_rank_by_precedence_keep_the_order_of_the_profiles_made_for_them() -> None:
    assert default_order(ALLIED, PRECEDENCE).ranks == 6
    assert default_order(ALLIED, PRECEDENCE_ROCE).ranks == 5


@pytest.mark.parametrize(
    ("default", "profile", "reason"),
    [
        (ALLIED, LOCAL, "class 6 (DSCP 51) would be in the queue of control, 6"),
        (SONIC, LOCAL, "class 0 (DSCP 3) would be in the lossless queue 3"),
        (SONIC, PRECEDENCE, "all classes would be in queue 1"),
        (BY_NAME["Cisco Nexus 5000, 6000"], PRECEDENCE, "all classes would be in queue 0"),
        (BY_NAME["Cumulus Linux 5"], PRECEDENCE, "queues share a link by weights"),
        (ALLIED, Codepoints((3, 11), 7), "class 0 would be served after class 1"),
        (ALLIED, Codepoints((47, 39), 7), "acknowledgements would not be beside class 0"),
    ],
)
def test_what_does_not_keep_it_is_refused_with_the_reason(default: SwitchDefault, profile: Codepoints, reason: str) -> None:
    assert default_order(default, profile).reason == reason


def test_they_are_in_the_order_of_their_names() -> None:
    assert [default.name for default in SWITCH_DEFAULTS] == sorted(BY_NAME)
