from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamer.errors import InputError
from beamer.network.codepoints import LOCAL
from beamer.network.protocol import LocalWorker, Port
from beamer.studies.model import Process
from hostagent.queues.tree import (
    LINK,
    ROOT,
    UNREGISTERED,
    Cap,
    Change,
    DscpFilter,
    HtbClass,
    Root,
    Tree,
    cap_ids,
    caps_of,
    class_id,
    difference,
    is_managed,
    port_tree,
)

MARK = Port(interface="e0", rate_bps=20_000_000, classify="mark")
DSCP = Port(interface="e0", rate_bps=20_000_000, classify="dscp")

ports = st.builds(
    Port,
    interface=st.just("e0"),
    rate_bps=st.sampled_from((8, 1000, 20_000_000, 10**10, 10**11)),
    classify=st.sampled_from(("mark", "dscp")),
)
caps = st.dictionaries(
    st.text("abc/", min_size=1, max_size=5), st.builds(Cap, st.integers(0, 0), st.sampled_from((8, 10**6))), max_size=3
)
trees = st.builds(port_tree, ports, st.integers(1, 8), st.sampled_from((0.1, 0.5)), caps)


def carried_out(observed: Tree | None, changes: tuple[Change, ...]) -> Tree | None:
    """Do what a kernel would, refusing what it would refuse."""
    tree = observed
    for verb, what in ((change.verb, change.what) for change in changes):
        if isinstance(what, Root):
            assert (tree is None) == (verb == "add")
            tree = Tree({}, {}, what.default) if verb == "add" else None
            continue
        assert tree is not None
        if isinstance(what, HtbClass):
            assert (what.id in tree.classes) == (verb != "add")
            assert what.parent == ROOT or what.parent in tree.classes
            if verb == "del":
                assert all(f.target != what.id for f in tree.filters.values()), "a class that a filter uses is busy"
                assert all(c.parent != what.id for c in tree.classes.values()), "a class with children is busy"
            classes = {k: c for k, c in tree.classes.items() if k != what.id} | ({} if verb == "del" else {what.id: what})
            tree = replace(tree, classes=classes)
        else:
            assert isinstance(what, DscpFilter)
            assert (what.prio in tree.filters) == (verb == "del")
            assert verb == "del" or what.target in tree.classes
            filters = {k: f for k, f in tree.filters.items() if k != what.prio} | ({} if verb == "del" else {what.prio: what})
            tree = replace(tree, filters=filters)
    return tree


@given(st.none() | trees, st.none() | trees)
@settings(deadline=None)
def test_the_difference_turns_one_tree_into_the_other(observed: Tree | None, desired: Tree | None) -> None:
    assert carried_out(observed, difference(observed, desired)) == desired


@given(st.none() | trees)
@settings(deadline=None)
def test_no_difference_to_itself(tree: Tree | None) -> None:
    assert difference(tree, tree) == ()


@given(trees)
@settings(deadline=None)
def test_guaranteed_rates_fit_the_link_or_are_one_byte(tree: Tree) -> None:
    leaves = [c for c in tree.classes.values() if c.parent == LINK]
    assert sum(c.rate for c in leaves) <= max(tree.classes[LINK].rate, len(leaves))
    assert all(1 <= c.rate <= c.ceil <= tree.classes[LINK].rate for c in leaves)


def test_managed_classes_are_ordered_by_priority_and_may_take_the_whole_link() -> None:
    tree = port_tree(MARK, 8, 0.1, {})
    managed = [tree.classes[class_id(k)] for k in range(8)]
    assert [c.prio for c in managed] == list(range(8))
    assert {c.ceil for c in managed} == {2_500_000}
    assert tree.classes[UNREGISTERED].rate == 250_000
    assert tree.classes[UNREGISTERED].prio == 7
    assert tree.default == 9


def test_a_switch_port_classifies_every_codepoint() -> None:
    filters = port_tree(DSCP, 8, 0.1, {}, ipv6=True).filters.values()
    of_classes = {(LOCAL.classes[k], is_ipv6): class_id(k) for k in range(8) for is_ipv6 in (False, True)}
    of_acknowledgements = {(LOCAL.acknowledgement, is_ipv6): class_id(0) for is_ipv6 in (False, True)}
    assert {(f.dscp, f.ipv6): f.target for f in filters} == {**of_classes, **of_acknowledgements}
    assert len({f.prio for f in filters}) == len(filters)
    assert not port_tree(MARK, 8, 0.1, {}).filters


def test_one_class_more_is_one_class_and_one_filter_more() -> None:
    changes = difference(port_tree(DSCP, 2, 0.1, {}), port_tree(DSCP, 3, 0.1, {}))
    assert [(c.verb, type(c.what)) for c in changes] == [("add", HtbClass), ("add", DscpFilter)]


def test_another_link_rate_changes_classes_in_place() -> None:
    changes = difference(port_tree(DSCP, 4, 0.1, {}), port_tree(DSCP.model_copy(update={"rate_bps": 10**8}), 4, 0.1, {}))
    assert {c.verb for c in changes} == {"change"}
    assert len(changes) == 6


def test_a_capped_job_has_a_class_of_its_own_in_its_priority() -> None:
    capped = {"s/t/j": Cap(klass=3, rate_bps=1_000_000)}
    (own,) = set(port_tree(MARK, 8, 0.1, capped).classes.values()) - set(port_tree(MARK, 8, 0.1, {}).classes.values())
    assert (own.id, own.prio, own.ceil) == (cap_ids(capped)["s/t/j"], 3, 125_000)


def test_ids_of_capped_jobs_do_not_depend_on_the_order_and_never_collide() -> None:
    jobs = [f"s/t/{i}" for i in range(500)]
    ids = cap_ids(jobs)
    assert ids == cap_ids(reversed(jobs))
    assert len(set(ids.values())) == 500
    assert all(0x10100 <= i < 0x11000 for i in ids.values())


def test_caps_come_from_workers() -> None:
    workers = (
        LocalWorker(job="a", rank=0, process=Process(2), klass=2, cap_bps=800),
        LocalWorker(job="b", rank=0, process=Process(3), klass=0),
    )
    assert caps_of(workers) == {"a": Cap(2, 800)}
    with pytest.raises(InputError, match=r"cap_bps.*-1"):
        caps_of([workers[0].model_copy(update={"cap_bps": -1})])


@pytest.mark.parametrize(
    ("rate", "queues", "share", "named"),
    [(0, 8, 0.1, "rate_bps"), (20_000_000, 9, 0.1, "queues"), (20_000_000, 8, 1.0, "unregistered_share")],
)
def test_what_no_tree_can_have_is_named(rate: int, queues: int, share: float, named: str) -> None:
    with pytest.raises(InputError, match=named):
        port_tree(Port(interface="e0", rate_bps=rate, classify="mark"), queues, share, {})


def test_managed_marks_are_told_from_all_others() -> None:
    assert all(is_managed(class_id(klass)) for klass in range(8))
    assert all(is_managed(id_) for id_ in cap_ids({f"s/{n}": Cap(0, 100) for n in range(50)}).values())
    assert not any(is_managed(priority) for priority in (0, 6, ROOT, LINK, UNREGISTERED, class_id(8), ROOT + 0xFFFF))
