"""What each maker's switch would do with the codepoints, by the text that is printed for it: in order, or the test fails."""

import shlex
from dataclasses import replace

import pytest

import beamer.cli
from beamer.errors import InputError
from beamer.network.codepoints import PROFILES
from beamer.network.switch_config import SWITCH_VENDORS, switch_config
from beamer.network.switch_config.queue_map import PortQueues, QueueMap, queue_map
from beamer.network.switch_config.vendor import rendered
from tests.support.checkout import ROOT
from tests.support.commands import run_here
from tests.support.pages import blocks
from tests.unit.network.switch_config.readers import READERS, ReadConfig

CS6, CS7 = 48, 56
ROCE = range(24, 32)
# By their documents: SONiC's qos_config.j2 (LOSSLESS_TC), and the default forwarding classes fcoe and no-loss of QFX switches.
LOSSLESS = {"sonic": {3, 4}, "junos": {3, 4}}
DOCUMENTED = {
    "aos-cx": "aruba-cx",
    "cumulus": "cumulus",
    "eos": "arista-eos",
    "junos": "juniper-qfx",
    "nxos": "cisco-nexus",
    "sonic": "sonic",
}

each_vendor = pytest.mark.parametrize("vendor", SWITCH_VENDORS)
each_profile = pytest.mark.parametrize("profile", PROFILES)


def check(read: ReadConfig, vendor: str, profile: str) -> None:
    """Fail where a switch that obeys a configuration would not keep the order of a profile."""
    codepoints = PROFILES[profile]
    queues, ranks = read.queues, read.ranks
    of_classes = [queues[dscp] for dscp in codepoints.classes]
    served = [ranks[queue] for queue in of_classes]
    assert read.trusts
    assert not read.rewrites
    assert served == sorted(served, reverse=True), "a class is served after a less urgent one"
    assert len({*served}) == len({*of_classes}), "two queues of classes share by weight"
    assert len({*of_classes}) > 1
    assert queues[codepoints.acknowledgement] == of_classes[0]
    control = {queues[CS6], queues[CS7]}
    assert len(control) == 1
    assert not control & {*of_classes}
    assert ranks[queues[CS6]] > max(served)
    roce = set(ROCE) if profile == "precedence-roce" else set()
    for dscp in {*range(64)} - {*codepoints.all} - {CS6, CS7} - roce:
        assert ranks[queues[dscp]] < min(served), f"DSCP {dscp} is not below all classes"
    lossless = LOSSLESS.get(vendor, set())
    if roce:
        assert {queues[dscp] for dscp in roce} == {3}
        assert 3 not in read.named, "the scheduler of RoCE's queue is touched"
        lossless = lossless | {3}
    assert not lossless & {*of_classes}


def in_order(text: str, vendor: str, profile: str) -> bool:
    try:
        check(READERS[vendor](text), vendor, profile)
    except AssertionError:
        return False
    return True


def test_each_vendor_has_a_reader() -> None:
    assert {*READERS} == {*SWITCH_VENDORS}
    assert [*SWITCH_VENDORS] == sorted(SWITCH_VENDORS)
    assert {*DOCUMENTED} == {*SWITCH_VENDORS}


@each_vendor
@each_profile
def test_a_switch_that_obeys_keeps_the_order(vendor: str, profile: str) -> None:
    check(READERS[vendor](switch_config(vendor, profile)), vendor, profile)


def moved(found: QueueMap, dscps: dict[int, int]) -> QueueMap:
    """Return a map in which some DSCPs are in other queues."""
    return replace(found, queues=tuple(dscps.get(dscp, queue) for dscp, queue in enumerate(found.queues)))


@each_vendor
@each_profile
def test_what_is_out_of_order_is_found_in_the_text(vendor: str, profile: str) -> None:
    maker, codepoints = SWITCH_VENDORS[vendor], PROFILES[profile]
    found = queue_map(profile, maker.port)
    first, second = codepoints.classes[:2]
    wrong = {
        "two classes the other way round": {first: found.classes[1], second: found.classes[0]},
        "a class beside control": {first: found.control},
        "a class below everything": {second: found.other},
        "acknowledgements beside class 1": {codepoints.acknowledgement: found.classes[1]},
        "what has no mark beside class 0": {0: found.classes[0]},
        "CS6 beside class 0": {CS6: found.classes[0]},
        "another codepoint with control": {45: found.control},
    }
    if LOSSLESS.get(vendor) or found.roce is not None:
        wrong["a class in a lossless queue"] = {first: 3}
    if found.roce is not None:
        wrong["RoCE beside a class"] = {26: found.classes[-1]}
    changed = {what: moved(found, dscps) for what, dscps in wrong.items()}
    if vendor != "aos-cx":  # it has one schedule for all queues
        changed["a class whose queue is not strict"] = replace(found, classes=(found.classes[0],) * len(found.classes))
    assert in_order(rendered(maker, found, maker.ports), vendor, profile)
    unnoticed = [what for what, one in changed.items() if in_order(rendered(maker, one, maker.ports), vendor, profile)]
    assert unnoticed == []


@each_vendor
@each_profile
def test_it_begins_with_what_it_is_for_and_that_nobody_tried_it(vendor: str, profile: str) -> None:
    text = switch_config(vendor, profile)
    maker = SWITCH_VENDORS[vendor]
    before, behind = maker.comment
    comment = [line.removeprefix(before).removesuffix(behind) for line in text.splitlines() if line.startswith(before)]
    joined = " ".join(comment)
    assert text.startswith(f"{before}Codepoints of Beamer's profile {profile} for {maker.title}")
    assert "UNTESTED ON HARDWARE." in " ".join(comment[:2])
    assert all(f"Source: {source}" in joined for source in maker.sources)
    assert all(f"Not confirmed: {one}" in joined for one in maker.unconfirmed)
    assert max(map(len, comment)) <= 120
    shared = len(PROFILES[profile].classes) > len({*queue_map(profile, maker.port).classes})
    assert ("no two classes share one" in joined) == shared


@pytest.mark.parametrize(
    ("vendor", "profile", "queues"),
    [
        ("cumulus", "precedence", (6, 5, 4, 3, 2, 1)),
        ("cumulus", "precedence-roce", (6, 5, 4, 2, 1)),
        ("cumulus", "local", (6, 5, 4, 3, 2, 1, 1, 1)),
        ("sonic", "precedence", (6, 5, 2, 1, 1, 1)),
        ("eos", "precedence-roce", (6, 5, 4, 4, 4)),
    ],
)
def test_the_least_urgent_classes_share_where_queues_are_fewer(vendor: str, profile: str, queues: tuple[int, ...]) -> None:
    assert queue_map(profile, SWITCH_VENDORS[vendor].port).classes == queues


def test_the_queue_of_roce_is_named_where_a_class_has_it() -> None:
    warning = "Queue 3 must not be lossless."
    assert warning in switch_config("cumulus", "precedence")
    assert warning not in switch_config("cumulus", "precedence-roce")
    assert warning not in switch_config("sonic", "precedence")


@pytest.mark.parametrize(("vendor", "page"), DOCUMENTED.items())
def test_pages_say_what_becomes_of_classes(vendor: str, page: str) -> None:
    text = (ROOT / "docs" / "switches" / f"{page}.md").read_text("utf-8")
    (block,) = (one for one in blocks(text) if one.kind == "run")
    _, *arguments = shlex.split(block.code.partition(">")[0])
    assert arguments[:4] == ["fabric", "switch-config", "--vendor", vendor]
    check(READERS[vendor](run_here(beamer.cli.main, *arguments).stdout), vendor, "precedence")
    rows = {tuple(map(str.strip, line.strip("|").split("|"))) for line in text.splitlines() if line.startswith("| ")}
    for profile in PROFILES:
        found = queue_map(profile, SWITCH_VENDORS[vendor].port)
        roce = "-" if found.roce is None else str(found.roce)
        assert (profile, " ".join(map(str, found.classes)), roce, str(found.control), str(found.other)) in rows


def test_what_a_queue_has() -> None:
    found = queue_map("precedence-roce", PortQueues(classes=(6, 5), beside_roce=(6, 5)))
    assert found.of_classes == (6, 5)
    assert found.strict == (7, 6, 5)
    assert found.used == (7, 6, 5, 3, 0)
    assert found.dscps(6) == (43, 47)
    assert found.members(5) == (1, 2, 3, 4)
    assert found.dscps(3) == tuple(ROCE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sonik", "local"), r"--vendor: got 'sonik', expected one of aos-cx, .* \(did you mean 'sonic'\?\)"),
        (("sonic", "precedense"), r"--codepoints: got 'precedense', expected one of .* \(did you mean 'precedence'\?\)"),
        (("sonic", "local", "Ethernet0"), r"--ports: got 'Ethernet0', expected none for sonic"),
        (("nxos", "local", ""), r"--ports: got '', expected ports as the switch names them, such as Ethernet1/"),
        (("junos", "local", " "), r"--ports: got ' ', expected ports as the switch names them, such as "),
    ],
)
def test_what_is_not_known_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        switch_config(*arguments)


def test_ports_are_named_where_they_have_to_be() -> None:
    assert "\ninterface Ethernet1/5\n" in switch_config("nxos", "local", "Ethernet1/5")
    text = switch_config("junos", "local", "et-0/0/1,et-0/0/2")
    for port in ("et-0/0/1", "et-0/0/2"):
        assert f"set class-of-service interfaces {port} scheduler-map beamer\n" in text


def test_the_command_prints_it() -> None:
    done = run_here(beamer.cli.main, "fabric", "switch-config", "--vendor", "eos", "--codepoints", "precedence")
    assert (done.returncode, done.stdout, done.stderr) == (0, switch_config("eos", "precedence"), "")
    refused = run_here(beamer.cli.main, "fabric", "switch-config", "--vendor", "eoss")
    assert refused.returncode == 2
    assert refused.stderr.startswith("beamer: --vendor: got 'eoss', expected one of ")
