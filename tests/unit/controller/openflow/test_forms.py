"""Which form a switch is given, what it then holds, and where packets go in fabrics of several forms."""

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain, permutations

import pytest
from os_ken.ofproto import ofproto_v1_3 as ofp

from beamer.network.codepoints import LOCAL
from beamer.network.fabric import Fabric
from beamer.testing.fabrics import star, two_spines
from controller.event_loop.time_slices import at_once
from controller.openflow import rule_counts
from controller.openflow.capabilities import RuleKind, SwitchCapabilities, TableCapabilities, tables_part, tables_said
from controller.openflow.fabric_rules import FabricRules
from controller.openflow.forms import FULL, HostMarksForm, Neighbours, ShownLimits, candidates, shortages
from controller.openflow.rule_counts import RuleCounts, Sort
from controller.openflow.rulebook import RuleBook
from controller.openflow.rules import IPV4, IPV6, TCP, JobRules, Rule, Table
from tests.support.openflow_samples import multipart
from tests.support.openflow_switch import PacketTrace, desired_rules, trace_packet
from tests.support.switch_limits import FIELDS, SwitchLimits

ONE_TABLE = SwitchLimits(tables=1, metadata=False, rewrites=frozenset({"eth_dst"}))
NO_ETHERNET = replace(ONE_TABLE, rewrites=frozenset(), matches=FIELDS - {"eth_dst", "eth_src"})


def capabilities(limits: SwitchLimits) -> SwitchCapabilities:
    """Return what is read of what a switch says."""
    return SwitchCapabilities(limits.tables, said(limits.features()))


def said(features: bytes) -> Mapping[int, TableCapabilities] | None:
    """Return what is read of an answer about tables."""
    return tables_said(tables_part(1, multipart(ofp.OFPMP_TABLE_FEATURES, features)).body)


def ipv6(fabric: Fabric) -> Fabric:
    hosts = tuple(replace(host, addresses=(f"2001:db8::{i + 1:x}",)) for i, host in enumerate(fabric.hosts))
    return replace(fabric, hosts=hosts)


def jobs(fabric: Fabric) -> list[JobRules]:
    first, last = fabric.hosts[0].ip, fabric.hosts[-1].ip
    both = frozenset({(first, 1, last, 2), (last, 2, first, 1)})
    return [JobRules("a", 1, 0, 2, both), JobRules("b", 2, 1, 0, frozenset({(last, 5, first, 6)}))]


class Site:
    """A fabric whose switches have said what they can do. limits: of those that can do less."""

    def __init__(self, fabric: Fabric, limits: Mapping[str, SwitchLimits]) -> None:
        self.fabric = fabric
        self.rules = FabricRules(fabric)
        self.book = RuleBook(fabric)
        change = at_once(self.book.change(jobs(fabric)))
        for name in fabric.switch:
            self.rules.answered(name, capabilities(limits.get(name, SwitchLimits())))
        while any(at_once(self.rules.adapted(name)) for name in fabric.switch):
            pass
        for name in fabric.switch:
            self.rules.change(name, change[name])

    def held(self, switch: str) -> frozenset[Rule] | None:
        rules = self.rules.rules(switch)
        return None if rules is None else frozenset(rules.values())

    def trace(self, src: str, dst: str, **fields: int | str) -> PacketTrace:
        """Return where a host's packet goes."""
        tables = {name: self.held(name) or () for name in self.fabric.switch}
        packet = {"eth_type": IPV4, "eth_dst": self.fabric.host[dst].mac, "ipv4_src": self.fabric.host[src].ip}
        return trace_packet(
            self.fabric, tables, src, {**packet, "ipv4_dst": self.fabric.host[dst].ip, "ip_dscp": 0, "ip_proto": 17, **fields}
        )


def of_job(fabric: Fabric) -> dict[str, int | str]:
    """Return the fields of a packet of the first job."""
    return {"ip_proto": TCP, "tcp_src": 1, "tcp_dst": 2}


def digest(rules: Mapping[str, Iterable[Rule]]) -> str:
    lines = [
        f"{name} {rule!r}"
        for name, of_switch in sorted(rules.items())
        for rule in sorted(of_switch, key=lambda one: (one.table, one.priority, one.match))
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [(star(3), "f0170da41385c998"), (two_spines(), "0a294c22f93a4d2f"), (ipv6(two_spines()), "c476b19e02ba1886")],
    ids=["star", "two spines", "IPv6"],
)
def test_switches_that_can_do_everything_hold_what_they_always_have(fabric: Fabric, expected: str) -> None:
    """The digests are those of the rules of the last version that knew no other form."""
    site = Site(fabric, {})
    held = {name: site.held(name) or frozenset() for name in fabric.switch}
    assert held == desired_rules(fabric, jobs(fabric))
    assert digest(held) == expected
    assert {(site.rules.report(name).form, site.rules.report(name).reason) for name in held} == {("full", "")}


@pytest.mark.parametrize(
    ("limits", "form", "reason"),
    [
        (SwitchLimits(), FULL, ""),
        (SwitchLimits(tables=2), HostMarksForm(True, True, LOCAL), "not full: it has 2 of the 4 tables that are needed"),
        (ONE_TABLE, HostMarksForm(True, True, LOCAL), "not full: it has 1 of the 4 tables that are needed"),
        (SwitchLimits(metadata=False), HostMarksForm(True, True, LOCAL), "table 1 does not match metadata"),
        (SwitchLimits(rewrites=frozenset({"eth_dst"})), HostMarksForm(True, True, LOCAL), "table 2 does not rewrite ip_dscp"),
        (
            NO_ETHERNET,
            HostMarksForm(True, False, LOCAL),
            "not host marks: table 0 does not match eth_dst, table 0 does not rewrite eth_dst",
        ),
        (
            replace(ONE_TABLE, actions=frozenset({ofp.OFPAT_OUTPUT, ofp.OFPAT_SET_FIELD})),
            HostMarksForm(False, True, LOCAL),
            "not host marks: table 0 has no action set_queue",
        ),
        (replace(ONE_TABLE, max_entries=60), HostMarksForm(True, False, LOCAL), "table 0 needs 128 rules and has room for 60"),
        (replace(ONE_TABLE, max_entries=22), HostMarksForm(False, True, LOCAL), "table 0 needs 44 rules and has room for 22"),
        (replace(ONE_TABLE, max_entries=9), HostMarksForm(False, False, LOCAL), "table 0 needs 20 rules and has room for 9"),
        (replace(ONE_TABLE, max_entries=7), None, "table 0 needs 8 rules and has room for 7"),
        (replace(ONE_TABLE, matches=FIELDS - {"arp_tpa"}), None, "table 0 does not match arp_tpa"),
    ],
)
def test_a_switch_is_given_the_fullest_form_that_it_can_hold(
    limits: SwitchLimits, form: HostMarksForm | None, reason: str
) -> None:
    site = Site(two_spines(), {"l1": limits})
    assert site.rules.form("l1") == form
    assert reason in site.rules.report("l1").reason
    assert (site.held("l1") is None) is (form is None)
    assert site.rules.form("s1") == replace(
        FULL,
        neighbours=Neighbours(
            acknowledgement=LOCAL.acknowledgement if isinstance(form, HostMarksForm) else None,
            unrestored=frozenset({0, 1}) if isinstance(form, HostMarksForm) and not form.ethernet else frozenset(),
        ),
    )


def test_metadata_of_few_bits_is_none() -> None:
    tables = capabilities(SwitchLimits()).tables or {}
    few = {number: replace(table, metadata_match=0xFF, metadata_write=0xFF) for number, table in tables.items()}
    rules = FabricRules(two_spines())
    rules.answered("l1", SwitchCapabilities(4, few))
    assert rules.report("l1").form == "host marks"
    for text in ("table 0 writes not all 64 bits of metadata", "table 1 matches not all 64 bits of metadata"):
        assert text in rules.report("l1").reason


@pytest.mark.parametrize("queues", [True, False])
def test_a_switch_without_set_queue_holds_the_rest(queues: bool) -> None:
    limits = SwitchLimits(actions=SwitchLimits().actions - (frozenset() if queues else {ofp.OFPAT_SET_QUEUE}))
    site = Site(two_spines(), {"s1": limits})
    actions = {action for rule in site.held("s1") or () for action in RuleKind.of(rule).actions}
    assert (ofp.OFPAT_SET_QUEUE in actions) is queues
    assert site.rules.report("s1").form == "full"
    assert bool(site.rules.report("s1").limits) is not queues


def test_queues_that_an_agent_makes_need_no_rule() -> None:
    fabric = two_spines()
    fabric = replace(fabric, switches=tuple(replace(one, agent=one.name) for one in fabric.switches))
    site = Site(fabric, {"l1": ONE_TABLE})
    assert site.rules.form("l1") == HostMarksForm(False, True, LOCAL)
    assert not any("queues of l1" in text for text in site.rules.report("l1").limits)


LESSER = {
    "a leaf": {"l1": ONE_TABLE},
    "a leaf without Ethernet addresses": {"l1": NO_ETHERNET},
    "the other leaf without Ethernet addresses": {"l2": NO_ETHERNET},
    "spines": {"s1": ONE_TABLE, "s2": NO_ETHERNET},
    "all": dict.fromkeys(("l1", "l2", "s1", "s2"), ONE_TABLE),
    "all, of both sorts": {"l1": ONE_TABLE, "l2": NO_ETHERNET, "s1": NO_ETHERNET, "s2": ONE_TABLE},
}


@pytest.mark.parametrize("limits", LESSER.values(), ids=LESSER)
def test_packets_arrive_with_their_hosts_address_and_their_class(limits: Mapping[str, SwitchLimits]) -> None:
    site = Site(two_spines(), limits)
    fabric = site.fabric
    for src, dst in permutations(fabric.host, 2):
        plain = site.trace(src, dst)
        asked = site.trace(src, dst, eth_type=0x0806, eth_dst="ff:ff:ff:ff:ff:ff", arp_tpa=fabric.host[dst].ip)
        assert (plain.arrived_at, asked.arrived_at) == (dst, dst)
    src, dst = fabric.hosts[0].name, fabric.hosts[-1].name
    marked = site.trace(src, dst, **of_job(fabric), ip_dscp=LOCAL.of(2))
    assert marked.arrived_at == dst
    assert marked.hops[-1].packet["eth_dst"] == fabric.host[dst].mac
    assert marked.hops[-1].packet["ip_dscp"] == LOCAL.of(2)
    assert {hop.queue for hop in marked.hops} == {3}
    acknowledgement = site.trace(src, dst, **of_job(fabric), ip_dscp=LOCAL.acknowledgement)
    assert acknowledgement.arrived_at == dst
    assert {hop.queue for hop in acknowledgement.hops} == {1}
    # A full edge gives a class by connection; a lesser one has none for what its host has not marked.
    unmarked = site.trace(src, dst, **of_job(fabric))
    assert {hop.queue for hop in unmarked.hops} == {0 if fabric.edge_of[src] in limits else 3}


def test_a_full_edge_takes_codepoints_off_and_a_lesser_one_believes_them() -> None:
    site = Site(two_spines(), {"l1": ONE_TABLE})
    believed, taken_off = site.trace("h1", "h3", ip_dscp=LOCAL.of(0)), site.trace("h3", "h1", ip_dscp=LOCAL.of(0))
    assert {hop.queue for hop in believed.hops} == {1}
    assert {hop.queue for hop in taken_off.hops} == {0}


def test_planes_are_kept_where_the_last_switch_puts_addresses_back() -> None:
    """Jobs of two planes towards a lesser leaf take two spines, unless the leaf could not put their addresses back."""
    for limits, spines in ((ONE_TABLE, {"s1", "s2"}), (NO_ETHERNET, {"s1"})):
        site = Site(two_spines(), {"l1": limits})
        first, second = (site.trace("h4", "h1", ip_proto=TCP, tcp_src=src, tcp_dst=dst) for src, dst in ((2, 1), (5, 6)))
        assert {trace.arrived_at for trace in (first, second)} == {"h1"}
        assert {hop.switch for trace in (first, second) for hop in trace.hops} - {"l1", "l2"} == spines


def test_ipv6_passes_a_lesser_switch_and_is_refused_by_one_that_matches_no_ethernet_address() -> None:
    fabric = ipv6(two_spines())
    site = Site(fabric, {"l1": ONE_TABLE, "s1": ONE_TABLE})
    for src, dst in permutations(fabric.host, 2):
        packet = {"eth_type": IPV6, "ipv6_src": fabric.host[src].addresses[0], "ipv6_dst": fabric.host[dst].addresses[0]}
        trace = site.trace(src, dst, **packet, ip_dscp=LOCAL.of(4))
        assert trace.arrived_at == dst
        assert trace.hops[0].queue == (5 if fabric.edge_of[src] == "l1" else 0)
    refused = Site(fabric, {"l1": NO_ETHERNET})
    assert refused.held("l1") is None
    assert "table 0 does not match eth_dst" in refused.rules.report("l1").reason
    # Without rules by Ethernet address it would have room, and lead no IPv6 anywhere.
    assert Site(fabric, {"l1": replace(ONE_TABLE, max_entries=20)}).held("l1") is None


def test_the_hosts_that_a_lesser_edge_believes_are_named() -> None:
    fabric = two_spines()
    fabric = replace(fabric, hosts=(replace(fabric.hosts[0], agent=None), *fabric.hosts[1:]))
    limits = Site(fabric, {"l1": ONE_TABLE}).rules.report("l1").limits
    assert any(text.startswith("without an agent at l1: h1: ") for text in limits)
    assert any("h1, h2" in text and "not counted" in text for text in limits)
    assert not any("without an agent" in text for text in Site(fabric, {"l2": ONE_TABLE}).rules.report("l2").limits)
    spine = Site(fabric, {"s1": ONE_TABLE}).rules.report("s1").limits
    assert spine == ()


def test_rules_follow_changes_of_the_four_tables() -> None:
    site = Site(two_spines(), {"l1": ONE_TABLE})
    route = next(rule for rule in FabricRules(site.fabric).rules("l1").values() if ("ipv4_dst", "10.77.0.3") in rule.match)  # type: ignore[union-attr]
    elsewhere = replace(route, actions=(replace(route.actions[0], port=4),))  # type: ignore[type-var]
    before = site.held("l1") or frozenset()
    changed = site.rules.change("l1", {route.slot: elsewhere})
    after = site.held("l1") or frozenset()
    assert len(before) == len(after)
    assert {rule.slot for rule in after - before} == set(changed)
    assert len(changed) == 1 + len(LOCAL.all)
    assert all(rule.table == Table.ADMISSION for rule in after)


def test_the_rules_of_a_job_that_has_ended_go_from_a_full_switch_beside_a_lesser_one() -> None:
    site = Site(two_spines(), {"l1": ONE_TABLE})
    book = RuleBook(site.fabric)
    at_once(book.change(jobs(site.fabric)))
    ended = at_once(book.change([]))["l2"]
    with_jobs = site.held("l2") or frozenset()
    assert set(site.rules.change("l2", ended)) == set(ended)
    without = site.held("l2") or frozenset()
    assert {rule.slot for rule in with_jobs - without} == set(ended)
    assert any(("ip_dscp", LOCAL.acknowledgement) in rule.match and rule.table == 0 for rule in without)


FEATURES = SwitchLimits().features()
FIRST = struct.unpack_from("!H", FEATURES)[0]


@pytest.mark.parametrize(
    "features",
    [
        b"",
        FEATURES[:-1],
        FEATURES + b"abc",
        FEATURES[:FIRST] + struct.pack("!H", 7) + FEATURES[FIRST + 2 :],
        FEATURES[:66] + struct.pack("!H", 3) + FEATURES[68:],
        FEATURES[FIRST:],
    ],
    ids=["empty", "cut off", "more behind it", "a table's length", "a property's length", "without the first table"],
)
def test_an_answer_that_cannot_be_is_none(features: bytes) -> None:
    assert said(FEATURES) is not None
    assert said(features) is None


def test_what_is_refused_is_forgotten_when_the_switch_connects_again() -> None:
    rules = FabricRules(two_spines())
    strips = [rule for rule in (rules.rules("l1") or {}).values() if rule.table == Table.CLEAR and rule.actions]
    says = capabilities(SwitchLimits())
    rules.answered("l1", says)
    rules.refused("l1", strips, {})
    assert at_once(rules.adapted("l1"))
    assert "it refuses rules of table 2 that match eth_type, match ip_dscp, rewrite ip_dscp" in rules.report("l1").reason
    rules.answered("l1", says)
    assert at_once(rules.adapted("l1"))
    assert rules.form("l1") == FULL


def test_rules_that_become_too_many_lead_to_the_lesser_form_which_then_stays() -> None:
    fabric = star(3)
    a, b = fabric.hosts[:2]
    many = JobRules("j", 1, 0, 0, frozenset((a.ip, port, b.ip, 2) for port in range(1, 30)))
    rules, book = FabricRules(fabric), RuleBook(fabric)
    small = capabilities(replace(SwitchLimits(), max_entries=24))
    rules.answered("s1", small)
    assert rules.form("s1") == FULL
    rules.change("s1", at_once(book.change([many]))["s1"])
    assert rules.outgrown("s1")
    assert rules.report("s1").form == "host marks"
    assert "table 0 needs 32 rules and has room for 24" in rules.report("s1").reason
    rules.change("s1", at_once(book.change([]))["s1"])
    assert not rules.outgrown("s1")
    at_once(rules.adapted("s1"))
    rules.refused("s1", [rule for rule in (rules.rules("s1") or {}).values() if RuleKind.of(rule).rewrites], {})
    assert rules.report("s1").form == "host marks", "nor does a refusal lead back"
    rules.answered("s1", small)
    assert rules.report("s1").form == "full", "it has connected again"


def test_a_switch_without_room_for_any_form_is_left_alone_until_there_is() -> None:
    fabric = two_spines()
    spines = replace(fabric, switches=tuple(replace(one, agent=one.name) for one in fabric.switches))
    rules, book = FabricRules(spines), RuleBook(spines)
    rules.answered("l1", capabilities(replace(SwitchLimits(), max_entries=35, matches=FIELDS - {"arp_tpa"})))
    assert at_once(rules.adapted("l1"))
    assert rules.rules("l1") is None
    assert rules.report("l1").form == "none"
    assert rules.change("l1", at_once(book.change(jobs(spines)))["l1"])
    assert rules.rules("l1") is None


def test_rules_of_the_lesser_form_come_before_what_is_left_of_the_four_tables() -> None:
    full, lesser = (Site(two_spines(), limits).held("l1") or () for limits in ({}, {"l1": ONE_TABLE}))
    assert max(rule.priority for rule in full if rule.table == Table.ADMISSION) < min(rule.priority for rule in lesser)


@pytest.mark.parametrize("fabric", [two_spines(), ipv6(two_spines())], ids=["IPv4", "IPv6"])
def test_rules_are_counted_as_they_change_as_they_are_when_looked_at_one_by_one(fabric: Fabric) -> None:
    book, rules = RuleBook(fabric), FabricRules(fabric)
    four = dict(rules.rules("l1") or {})
    counts = RuleCounts(four)
    for wanted in ([], jobs(fabric), jobs(fabric)[:1], jobs(fabric), []):
        change = at_once(book.change(wanted))["l1"]
        gone = [four.pop(slot) for slot in change if slot in four]
        four.update((slot, rule) for slot, rule in change.items() if rule is not None)
        counts.change(gone, [rule for rule in change.values() if rule is not None])
        for needs in candidates(fabric, "l1", LOCAL, counts):
            for neighbours in (Neighbours(), Neighbours(frozenset({2}), LOCAL.acknowledgement, (IPV4, IPV6))):
                form = needs.form.beside(neighbours)
                expected: Counter[int] = Counter()
                for one in chain.from_iterable(map(form.rules, four.values())):
                    expected[one.table] += 1 + one.counts
                assert counts.needed(form) == expected


def test_rules_that_change_while_a_switch_is_given_another_form_are_in_that() -> None:
    fabric = two_spines()
    rules, book = FabricRules(fabric), RuleBook(fabric)
    rules.change("l1", at_once(book.change(jobs(fabric)))["l1"])
    rules.answered("l1", capabilities(ONE_TABLE))
    assert at_once(rules.adapted("l1"))
    rules.answered("l2", capabilities(ONE_TABLE))
    assert at_once(rules.adapted("l2"))
    rules.answered("l1", capabilities(SwitchLimits()))
    work = rules.adapted("l1")
    next(work)
    rules.change("l1", at_once(book.change([]))["l1"])
    assert at_once(work)
    expected = Site(fabric, {"l2": ONE_TABLE})
    expected.rules.change("l1", at_once(expected.book.change([]))["l1"])
    assert frozenset((rules.rules("l1") or {}).values()) == expected.held("l1")


def test_a_choice_looks_at_no_rule_that_has_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = star(3)
    a, b = fabric.hosts[:2]
    many = JobRules("j", 1, 0, 0, frozenset((a.ip, port, b.ip, 2) for port in range(1, 200)))
    rules, book = FabricRules(fabric), RuleBook(fabric)
    rules.answered("s1", capabilities(replace(SwitchLimits(), max_entries=210)))
    rules.change("s1", at_once(book.change([many]))["s1"])
    assert not rules.outgrown("s1")
    looked = 0

    def counted(rule: Rule, before: Callable[[Rule], Sort] = rule_counts._sort) -> Sort:
        nonlocal looked
        looked += 1
        return before(rule)

    monkeypatch.setattr(rule_counts, "_sort", counted)
    more = JobRules("k", 2, 0, 0, frozenset((a.ip, port, b.ip, 2) for port in range(1000, 1010)))
    change = at_once(book.change([many, more]))["s1"]
    rules.change("s1", change)
    assert rules.outgrown("s1")
    assert looked == len(change)


def test_a_pairs_rules_need_room_twice_as_its_class_may_change() -> None:
    rules = FabricRules(star(2)).rules("s1") or {}
    of_jobs = at_once(RuleBook(star(2)).change(jobs(star(2))))["s1"]
    both = [*rules.values(), *(rule for rule in of_jobs.values() if rule is not None)]
    short = list(
        shortages(
            FULL, RuleCounts({rule.slot: rule for rule in both}), capabilities(SwitchLimits(max_entries=1)), ShownLimits()
        )
    )
    # Three pairs of three rules, twice, and the one for pairs whose rules have timed out.
    assert "table 1 needs 19 rules and has room for 1" in short
