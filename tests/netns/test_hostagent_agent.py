"""Whole agents as processes: real connections of real workers, a controller that comes and goes, signals, expiry."""

import signal
import time

import pytest

from beamer.network.protocol import Applied, Connections, Counters, Hello
from tests.netns.bench import PORT, Bench, eventually, kill_group, local_worker
from tests.support.agent_doubles import FakeController

pytestmark = pytest.mark.netns


def test_two_jobs_on_the_same_two_hosts_are_distinguished(bench: Bench) -> None:
    one, one_port = bench.worker("quiet", "10.77.0.2", "127.0.0.1")
    two, two_port = bench.worker("quiet", "10.77.0.2")
    bench.worker("quiet", "10.77.0.2")  # not registered
    bench.agent()
    bench.controller.applied(bench.assign(1, local_worker(one, "s/t/one", 0), local_worker(two, "s/t/two", 1)))
    seen = bench.controller.wait(Connections, lambda m: len(m.connections) >= 2)
    assert {(c.job, c.local_ip, c.local_port, c.remote_ip, c.remote_port) for c in seen.connections} == {
        ("s/t/one", "10.77.0.1", one_port, "10.77.0.2", 5000),
        ("s/t/two", "10.77.0.1", two_port, "10.77.0.2", 5000),
    }
    after = len(bench.controller.received)
    kill_group(two)
    seen = bench.controller.wait(Connections, lambda m: len(m.connections) == 1, after)
    assert seen.connections[0].job == "s/t/one"


def test_marks_send_each_job_through_its_class_most_urgent_first(bench: Bench) -> None:
    bench.agent()
    bench.controller.applied(bench.assign(1))
    urgent, _ = bench.worker("child", "10.77.0.2")
    patient, _ = bench.worker("busy", "10.77.0.2")
    jobs = local_worker(urgent, "s/t/urgent", 1), local_worker(patient, "s/t/patient", 2)
    bench.controller.applied(bench.assign(2, *jobs))
    bench.marked(2)
    time.sleep(0.5)
    before, began = bench.classes(), time.monotonic()
    time.sleep(2)
    after, ended = bench.classes(), time.monotonic()
    sent = {name: after[name] - before[name] for name in after}
    assert sent["1:11"] > 20 * sent["1:12"], "a lower class only takes what is left over"
    assert sent["1:11"] > 50 * sent["1:9"], "what is registered does not travel as unregistered"
    assert 0.85 < 8 * sent["1:1"] / (ended - began) / PORT.rate_bps < 1.05, "the link carries its rate"

    swapped = bench.assign(3, local_worker(urgent, "s/t/urgent", 2), local_worker(patient, "s/t/patient", 1))
    assert bench.controller.applied(swapped).changes == 2

    def is_swapped() -> bool:
        before = bench.classes()
        time.sleep(1)
        after = bench.classes()
        return after["1:11"] - before["1:11"] > 20 * (after["1:12"] - before["1:12"])

    # The one that was starved for 2.5 s sends again when TCP's time-out is over, which has doubled meanwhile.
    assert any(is_swapped() for _ in range(5))


def test_a_connection_that_the_network_does_not_know_travels_as_unregistered(bench: Bench) -> None:
    bench.controller.confirming = False
    bench.agent()
    worker, _ = bench.worker("busy", "10.77.0.2")
    assignment = bench.assign(1, local_worker(worker, "s/t/j", 3))
    bench.controller.applied(assignment)
    bench.controller.wait(Connections, lambda m: bool(m.connections))
    before = bench.classes()
    eventually(lambda: bench.classes()["1:9"] > before["1:9"] + 100_000)
    assert bench.classes()["1:13"] == 0
    bench.controller.confirming = True
    bench.controller.disconnect_agents()  # the agent reports again
    bench.marked()
    eventually(lambda: bench.classes()["1:13"] > 100_000)
    seen = bench.controller.wait(Connections, lambda m: bool(m.unmatched_bytes))
    assert seen.unmatched_bytes["s/t/j"] > 100_000, "what it sent without its mark is reported"


def test_a_capped_job_keeps_to_its_rate_and_is_counted_in_its_queue(bench: Bench) -> None:
    bench.agent()
    bench.controller.applied(bench.assign(1))
    worker, _ = bench.worker("busy", "10.77.0.2")
    bench.controller.applied(bench.assign(2, local_worker(worker, "s/t/j", 0, cap_bps=2_000_000)))
    bench.marked()
    time.sleep(0.5)
    after = len(bench.controller.received)
    first = bench.controller.wait(Counters, after=after)
    last = bench.controller.wait(Counters, lambda m: m.at_s > first.at_s + 2, after=after)
    sent = [next(c for c in m.ports[0].classes if c.klass == 0).sent_bytes for m in (first, last)]
    assert 0.7 < 8 * (sent[1] - sent[0]) / (last.at_s - first.at_s) / 2_000_000 < 1.2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_restarted_agent_changes_nothing(bench: Bench, number: signal.Signals) -> None:
    agent = bench.agent()
    bench.controller.applied(bench.assign(0))
    worker, port = bench.worker("busy", "10.77.0.2")
    assignment = bench.assign(1, local_worker(worker, "s/t/j", 3))
    bench.controller.applied(assignment)
    bench.marked()
    agent.send_signal(number)
    assert agent.wait(10) == (-number if number == signal.SIGKILL else 0)
    before = bench.classes()
    eventually(lambda: bench.classes()["1:13"] > before["1:13"] + 100_000)  # traffic goes on in its class
    received = len(bench.controller.received)
    bench.agent()
    assert bench.controller.wait(Applied, after=received) == Applied(generation=1, changes=0)
    seen = bench.controller.wait(Connections, lambda m: bool(m.connections), after=received)
    assert seen.connections[0].local_port == port
    assert seen.unmatched_bytes == {}, "what it sent carried the mark"
    assert bench.classes()["1:13"] >= before["1:13"], "counters were not reset"


def test_queues_are_removed_when_a_killed_agent_does_not_come_back(bench: Bench) -> None:
    agent = bench.agent(expiry_s=1)
    bench.controller.applied(bench.assign(1))
    time.sleep(1.5)
    assert bench.classes(), "an agent that has its controller keeps renewing"
    agent.kill()
    agent.wait()
    assert bench.classes(), "the queues outlive it at first"
    eventually(lambda: not bench.classes())
    assert "noqueue" in bench.here.run("tc", "qdisc", "show", "dev", "data")
    eventually(lambda: not bench.state.held("guard"))
    assert bench.state.owned() == frozenset()


def test_without_a_controller_the_plan_stays_for_a_time_and_comes_back_with_it(bench: Bench) -> None:
    worker, _ = bench.worker("busy", "10.77.0.2")
    bench.agent(expiry_s=2)
    assignment = bench.assign(5, local_worker(worker, "s/t/j", 3))
    bench.controller.applied(assignment)
    bench.marked()
    bench.controller.stop()
    assert bench.classes()
    late, _ = bench.worker("quiet", "10.77.0.2")  # the agent's own loop must survive all of this
    eventually(lambda: not bench.classes())
    assert late.poll() is None
    bench.controller = bench.stack.enter_context(FakeController(bench.here))
    hello = bench.controller.wait(Hello)
    assert hello.generation == 0, "nothing is in force any more"
    assert bench.controller.applied(assignment).changes == 1 + 10 + 1, "root, classes, rules"
    before = bench.classes()
    eventually(lambda: bench.classes()["1:13"] > before["1:13"] + 100_000)


def test_after_a_lost_connection_the_agent_connects_and_reports_everything_again(bench: Bench) -> None:
    worker, _ = bench.worker("quiet", "10.77.0.2")
    bench.agent()
    bench.controller.applied(bench.assign(4, local_worker(worker, "s/t/j", 3)))
    bench.marked()
    received = len(bench.controller.received)
    bench.controller.disconnect_agents()
    assert bench.controller.wait(Hello, after=received).generation == 4
    bench.controller.wait(Connections, lambda m: bool(m.connections), after=received)
    assert bench.controller.wait(Applied, after=received) == Applied(generation=4, changes=0)


def test_remove_takes_down_its_own_and_nothing_else(bench: Bench) -> None:
    bench.here.run("ip", "link", "add", "other", "type", "veth", "peer", "name", "other2")
    bench.here.run("tc", "qdisc", "add", "dev", "other", "root", "handle", "1:", "htb", "default", "1")
    agent = bench.agent()
    bench.controller.applied(bench.assign(1))
    refused = bench.controller.applied(bench.assign(2, ports=(PORT, PORT.model_copy(update={"interface": "other"}))))
    assert "other" in (refused.error or ""), "another program's tree is not taken over"
    agent.terminate()
    agent.wait(10)
    bench.remove()
    assert not bench.state.held("guard")
    assert "noqueue" in bench.here.run("tc", "qdisc", "show", "dev", "data")
    assert "htb 1:" in bench.here.run("tc", "qdisc", "show", "dev", "other")


def test_a_port_that_is_no_longer_assigned_is_given_back(bench: Bench) -> None:
    bench.agent()
    bench.controller.applied(bench.assign(1))
    assert bench.controller.applied(bench.assign(2, ports=())).changes == 1
    assert "noqueue" in bench.here.run("tc", "qdisc", "show", "dev", "data")


def test_a_wrong_assignment_changes_nothing_and_is_answered(bench: Bench) -> None:
    worker, _ = bench.worker("quiet", "10.77.0.2")
    bench.agent()
    wrong = {
        "rate_bps": bench.assign(1, ports=(PORT.model_copy(update={"rate_bps": 0}),)),
        "nosuch": bench.assign(2, ports=(PORT, PORT.model_copy(update={"interface": "nosuch"}))),
        "klass": bench.assign(3, local_worker(worker, "s/t/j", 8)),
    }
    for named, assignment in wrong.items():
        assert named in (bench.controller.applied(assignment).error or "")
    assert not bench.classes()


def test_an_interface_that_comes_later_completes_the_assignment(bench: Bench) -> None:
    worker, _ = bench.worker("busy", "10.77.0.2")
    bench.agent()
    ports = PORT, PORT.model_copy(update={"interface": "late"})
    assert "late" in (bench.controller.applied(bench.assign(1, local_worker(worker, "s/t/j", 3), ports=ports)).error or "")
    bench.here.run("ip", "link", "add", "late", "type", "veth", "peer", "name", "late2")
    done = bench.controller.wait(Applied, lambda m: m.error is None)
    assert done.generation == 1
    assert "htb 1:" in bench.here.run("tc", "qdisc", "show", "dev", "late")
    eventually(lambda: bench.classes()["1:13"] > 100_000)


def test_queues_that_somebody_removed_come_back(bench: Bench) -> None:
    bench.agent()
    bench.controller.applied(bench.assign(1))
    bench.here.run("tc", "qdisc", "del", "dev", "data", "root")
    eventually(lambda: len(bench.classes()) == 10)


def test_an_interface_that_goes_away_is_reported_and_so_is_its_return(bench: Bench) -> None:
    bench.here.run("ip", "link", "add", "other", "type", "veth", "peer", "name", "other2")
    bench.agent()
    ports = PORT, PORT.model_copy(update={"interface": "other"})
    assert bench.controller.applied(bench.assign(1, ports=ports)).error is None
    after = len(bench.controller.received)
    bench.here.run("ip", "link", "del", "other")
    lost = bench.controller.wait(Applied, lambda m: m.error is not None, after)
    assert lost.generation == 1
    assert "other" in (lost.error or "")
    refused = bench.controller.applied(bench.assign(2, ports=(ports[0].model_copy(update={"rate_bps": 10**7}), ports[1])))
    assert "other" in (refused.error or "")
    assert "rate 10Mbit ceil 10Mbit" in bench.here.run("tc", "class", "show", "dev", "data"), "the newest plan is in force"
    bench.here.run("ip", "link", "add", "other", "type", "veth", "peer", "name", "other2")
    bench.controller.wait(Applied, lambda m: m.error is None and m.generation == 2, after)
    assert "htb 1:" in bench.here.run("tc", "qdisc", "show", "dev", "other")


def test_the_agent_finds_the_controller_that_is_there(bench: Bench) -> None:
    bench.agent("--controller", f"ws://127.0.0.1:1,{bench.controller.url}")
    assert bench.controller.applied(bench.assign(1)).error is None
    assert bench.classes()


def test_queues_that_another_program_replaces_are_named_and_come_back_when_it_gives_them_up(bench: Bench) -> None:
    bench.agent()
    bench.controller.applied(bench.assign(1))
    after = len(bench.controller.received)
    bench.here.run("tc", "qdisc", "replace", "dev", "data", "root", "handle", "8001:", "pfifo")
    lost = bench.controller.wait(Applied, lambda m: m.error is not None, after)
    assert "ports[data]: got 'pfifo 8001:', expected an interface with the kernel's default queueing discipline" in str(
        lost.error
    )
    after = len(bench.controller.received)
    bench.here.run("tc", "qdisc", "del", "dev", "data", "root")
    bench.controller.wait(Applied, lambda m: m.error is None, after)
    assert len(bench.classes()) == 10


def test_an_mtu_above_the_networks_is_named_until_it_is_mended(bench: Bench) -> None:
    bench.agent()
    assert bench.controller.applied(bench.assign(1)).error is None
    after = len(bench.controller.received)
    bench.here.run("ip", "link", "set", "data", "mtu", "9000")
    wrong = bench.controller.wait(Applied, lambda m: m.error is not None, after)
    assert "data sends packets of 9000 bytes, and the network carries 1500: ip link set data mtu 1500" in str(wrong.error)
    after = len(bench.controller.received)
    bench.here.run("ip", "link", "set", "data", "mtu", "1500")
    bench.controller.wait(Applied, lambda m: m.error is None, after)
