"""What is kept and logged of a network that is not as its file says."""

from dataclasses import replace

from structlog.testing import capture_logs

from beamer.network.observed_fabric import Mismatch
from beamer.testing.fabrics import two_spines
from controller.network.condition import NetworkCondition
from controller.openflow.reports import NetworkSeen

WRONG = Mismatch("wrong cable", "l1", 1, "l1 port 1 leads to s2 port 1; the file says s1 port 1")
ALL = frozenset(two_spines(1).switch)
DARK = Mismatch("no link", "l1", 1, "l1 port 1 has no link; the file connects it to s1")


def test_each_mismatch_is_logged_once_and_so_is_its_end() -> None:
    condition = NetworkCondition(two_spines(1))
    assert condition.fits
    with capture_logs() as logs:
        assert condition.take_in(NetworkSeen((WRONG,), frozenset({("l1", "s1")}), ALL))
        assert not condition.take_in(NetworkSeen((DARK,), frozenset({("l1", "s1")}), ALL))
        assert not condition.fits
        assert condition.take_in(NetworkSeen(switches=ALL))
        assert condition.fits
    assert [(entry["event"], entry["log_level"], entry.get("mismatch", entry.get("port"))) for entry in logs] == [
        ("the network is not as its file says", "warning", WRONG.text),
        ("the network is not as its file says", "warning", DARK.text),
        ("a port is as the network's file says again", "info", 1),
    ]


def test_of_a_switch_that_is_gone_it_is_not_said_that_it_is_right_again() -> None:
    condition = NetworkCondition(two_spines(1))
    with capture_logs() as logs:
        condition.take_in(NetworkSeen((WRONG,), frozenset({("l1", "s1")}), ALL))
        condition.take_in(NetworkSeen((), frozenset({("l1", "s1")}), ALL - {"l1"}))
    assert [entry["event"] for entry in logs] == ["the network is not as its file says"]


def test_hosts_that_no_path_leads_to_are_named() -> None:
    condition = NetworkCondition(two_spines(1))
    with capture_logs() as logs:
        condition.take_in(NetworkSeen((), frozenset({("l1", "s1"), ("l1", "s2")})))
    assert condition.cut_off in (("h1",), ("h2",))
    assert logs == [
        {"event": "no path leads to some hosts", "hosts": list(condition.cut_off), "number": 1, "log_level": "error"}
    ]
    condition.take_in(NetworkSeen())
    assert condition.cut_off == ()


def test_a_cable_that_comes_and_goes_fills_no_log() -> None:
    flaps = 100
    condition = NetworkCondition(two_spines(1))
    with capture_logs() as logs:
        for _ in range(flaps):
            condition.take_in(NetworkSeen((DARK,), frozenset({("l1", "s1")}), ALL))
            condition.take_in(NetworkSeen(switches=ALL))
    assert len(logs) < flaps / 2


def test_queues_that_have_not_been_read_back_do_not_fit_and_a_database_is_no_port() -> None:
    fabric = two_spines(1)
    first = replace(fabric.switches[0], ovsdb="unix:/db")
    condition = NetworkCondition(replace(fabric, switches=(first, *fabric.switches[1:])))
    assert not condition.fits, "before anything is seen"
    gone = Mismatch("no database", "l1", 0, "the database of l1 is of no use")
    with capture_logs() as logs:
        condition.take_in(NetworkSeen((gone,), frozenset(), ALL - {"l1"}, unread=frozenset({"l1"})))
        condition.take_in(NetworkSeen(switches=ALL - {"l1"}, unread=frozenset({"l1"})))
        assert not condition.fits
        condition.take_in(NetworkSeen(switches=ALL))
        assert condition.fits
        condition.take_in(NetworkSeen((replace(gone, kind="not queued", text="told"),), switches=ALL))
        condition.take_in(NetworkSeen(switches=ALL, unread=frozenset({"l1"})))  # It is not known any more.
        condition.take_in(NetworkSeen(switches=ALL - {"l1"}))
    told = logs.pop()
    assert (told["event"], told["mismatch"]) == ("the network is not as its file says", "told"), (
        "of a lost switch nothing is said"
    )
    assert logs == [
        {"event": "the network is not as its file says", "mismatch": gone.text, "log_level": "warning"},
        {"event": "a switch is as the network's file says again", "switch": "l1", "log_level": "info"},
    ]
