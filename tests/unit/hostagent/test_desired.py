"""What an assignment asks of a host, by the codepoints that it names."""

import pytest

from beamer.errors import InputError
from beamer.network.codepoints import LOCAL, PROFILES, Codepoints
from beamer.network.protocol import Assignment, LocalWorker, Port
from beamer.studies.model import Process
from beamer.versioned_messages import encode
from hostagent.desired import desired_state, parse_message
from hostagent.marks.acknowledgements import _chains
from hostagent.marks.nftables import FAMILIES

WORKER = LocalWorker(job="s/t", rank=0, process=Process(2), klass=2)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_marks_filters_and_rules_for_acknowledgements_go_by_the_profile(profile: Codepoints) -> None:
    ports = tuple(Port(interface=kind, rate_bps=10**9, classify=kind) for kind in ("mark", "dscp"))
    given = Assignment(generation=1, queues=len(profile.classes), ports=ports, workers=(WORKER,), codepoints=profile)
    read = parse_message(encode(given, 2), 2).message
    assert isinstance(read, Assignment)
    assert read.codepoints == profile
    state = desired_state(read)
    assert state.marks["s/t"].dscp == profile.classes[2]
    assert state.marks["s/t"].is_managed
    assert [one.dscp for _, one in sorted(state.trees["dscp"].filters.items())] == [*profile.classes, profile.acknowledgement]
    assert not state.ipv6
    for family in FAMILIES:
        rules = " ".join(rule for of_chain in _chains("mark", profile, family).values() for rule in of_chain)
        assert f"{family} dscp set {profile.acknowledgement} " in rules
        assert f"{{ {', '.join(map(str, profile.classes))} }}" in rules
    both = desired_state(read.model_copy(update={"addresses": ("10.0.0.1", "fd00::1")}))
    assert both.ipv6
    filters = both.trees["dscp"].filters.values()
    assert {one for one in filters if not one.ipv6} == set(state.trees["dscp"].filters.values())
    assert [(one.dscp, one.target) for one in filters if one.ipv6] == [
        (one.dscp, one.target) for one in filters if not one.ipv6
    ]
    assert both.trees["mark"] == state.trees["mark"]


def test_an_assignment_that_names_none_goes_by_the_local_profile() -> None:
    frame = '{"kind": "assignment", "generation": 1}'
    message = parse_message(frame).message
    assert isinstance(message, Assignment)
    assert message.codepoints == LOCAL
    assert "codepoints" not in encode(Assignment(generation=1), 1)


@pytest.mark.parametrize(
    ("codepoints", "field"),
    [(Codepoints((3, 3), 7), "codepoints"), (Codepoints((3,), 7), "queues")],
)
def test_codepoints_that_tell_no_classes_apart_are_refused(codepoints: Codepoints, field: str) -> None:
    with pytest.raises(InputError) as refused:
        desired_state(Assignment(generation=1, queues=2, codepoints=codepoints))
    assert refused.value.field == field


def test_what_one_address_of_a_host_sends_to_another_is_said_to_agents_of_this_version_alone() -> None:
    given = Assignment(generation=1, addresses=("10.0.0.1", "fd00::1"), own_addresses=(("10.0.0.1", "fd00::1"),))
    read = parse_message(encode(given, 2), 2).message
    assert isinstance(read, Assignment)
    assert read.own_addresses == given.own_addresses
    assert "own_addresses" not in encode(given, 1)
