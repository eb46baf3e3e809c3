"""Trials on real hosts while processes end, return, are mistaken for others, fall silent or are restarted, from end to end.

Controller, agents and trainers are processes. No test asserts how long something takes, only that it comes, or what it follows.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from beamer.client import RUN_VARIABLE
from beamer.client.lease import describe_process
from beamer.network.plan import QUEUES
from tests.netns.cluster import HOSTS, URL, Cluster, codepoints

pytestmark = pytest.mark.netns

SHORT_GRACE = ("--grace", "1")
LONG_GRACE = ("--grace", "8")  # a process that is started again is back within it, also on an overloaded machine


def status(cluster: Cluster, key: str) -> str:
    return str(cluster.known(key)["status"])


def ended(cluster: Cluster) -> list[str]:
    """Return the trials whose attempts the controller has ended, as it has logged them."""
    return re.findall(r"the attempt ends .*trial=(\S+)", cluster.log())


def silent(cluster: Cluster) -> list[str]:
    """Return what the controller has logged to have fallen silent."""
    return re.findall(r"nothing was heard of it.*?((?:\b(?:stage|study|trial)=\S+ ?)+)$", cluster.log(), re.MULTILINE)


def leased(cluster: Cluster, key: str) -> list[int]:
    """Return the ranks of a trial that hold leases."""
    workers = cluster.known(key)["attempts"][-1]["workers"]
    return [worker["rank"] for worker in workers if worker["process"] and worker["process"]["leased"]]


@pytest.mark.long
def test_a_killed_rank_ends_its_attempt_and_no_other(cluster: Cluster) -> None:
    cluster.start(*SHORT_GRACE)
    cluster.declare("s/killed", "h1", "h2", "h2")
    killed, other = cluster.processes("s/killed", "h1", "h2", "h2"), cluster.trial("s/other")
    cluster.processes(None, *HOSTS)
    cluster.until(lambda: cluster.is_in_force(killed, other))
    klass = cluster.classes()["s/other"]
    with cluster.sampled(other) as seen:
        killed.kill(1)
        cluster.until(lambda: status(cluster, "s/killed") == "lost")
        cluster.until(lambda: cluster.is_in_force(other))
    known = cluster.known("s/killed")
    assert known["class"] is None
    assert [attempt["reason"] for attempt in known["attempts"]] == ["lost"]
    assert all(process.poll() is None for process in (killed.processes[0], killed.processes[2]))
    assert cluster.classes() == {"s/other": klass}
    assert set.union(*seen.values()) == codepoints(klass)


@pytest.mark.long
def test_trainers_attach_to_a_restarted_agent_before_their_grace_is_over(cluster: Cluster) -> None:
    cluster.start(*LONG_GRACE)
    trial, killed = cluster.trial("s/t"), cluster.trial("s/killed")
    cluster.until(lambda: cluster.is_in_force(trial, killed))
    klass = cluster.classes()["s/t"]
    with cluster.sampled(trial) as seen:
        cluster.agents["h2"].kill()
        cluster.agents["h2"].wait()
        killed.kill(1)
        cluster.start_agent("h2")
        # Its lease is missing for as long as the other one's: what has attached again is still running.
        cluster.until(lambda: status(cluster, "s/killed") == "lost")
        cluster.until(lambda: cluster.is_in_force(trial))
    assert ended(cluster) == ["s/killed"]
    assert [attempt["ended_s"] for attempt in cluster.known("s/t")["attempts"]] == [None]
    assert set.union(*seen.values()) == codepoints(klass)


@pytest.mark.long
def test_an_attempt_whose_agent_does_not_come_back_is_lost(cluster: Cluster) -> None:
    cluster.start(*SHORT_GRACE)
    trial = cluster.trial("s/t")
    cluster.until(lambda: cluster.is_in_force(trial))
    klass = cluster.classes()["s/t"]
    cluster.agents["h2"].kill()
    cluster.until(lambda: status(cluster, "s/t") == "lost")
    cluster.until(lambda: cluster.classes() == {})  # a decision follows
    # Nobody is there to unmark those of the second host; without the agent's lease their queues end with it.
    cluster.until(lambda: cluster.marks() == trial.marks(klass, 1))
    assert all(process.poll() is None for process in trial.processes)


TUNER = """
import sys
from beamer.client import Client
client = Client(sys.argv[1])
study = client.study("s")
trial = study.trial("t")
stage = study.stage("rung0")
stage.add(trial, step=1_000_000)
trial.start(workers=["h1", "h2"], sync_bytes=16384)
assert client.flush(60)
print("registered", flush=True)
sys.stdin.read()
"""


def tuner(cluster: Cluster, run: str) -> "subprocess.Popen[str]":
    process = cluster.process("h1", sys.executable, "-c", TUNER, URL, **{RUN_VARIABLE: run})
    assert process.stdout
    assert process.stdout.readline() == "registered\n", cluster.log("processes")
    return process


@pytest.mark.long
def test_a_killed_tuners_trial_goes_on_and_its_study_falls_silent_without_it(cluster: Cluster) -> None:
    cluster.start(*SHORT_GRACE, "--silence", "3")
    study = "/v1/studies/s"
    first = tuner(cluster, "first")
    trial = cluster.processes("s/t", *HOSTS)
    cluster.until(lambda: cluster.is_in_force(trial))
    first.kill()
    first.wait()
    # Longer than the silence: another study, whose trial nobody runs, falls silent meanwhile.
    cluster.declare("other/t", *HOSTS)
    cluster.until(lambda: cluster.get("/v1/studies/other")["status"] == "silent")
    cluster.until(lambda: cluster.is_in_force(trial))
    assert [attempt["ended_s"] for attempt in cluster.known("s/t")["attempts"]] == [None]

    trial.kill()
    cluster.until(lambda: cluster.get(study)["status"] == "silent")
    known = cluster.get(study)
    assert [stage["status"] for stage in known["stages"]] == ["silent"]
    assert known["trials"][0]["status"] == "lost"
    assert cluster.classes() == cluster.marks() == {}
    assert silent(cluster)[-2:] == ["stage=rung0 study=s", "study=s"]

    second = tuner(cluster, "first")
    known = cluster.get(study)
    assert (known["run"], known["status"]) == ("first", "active")
    assert [stage["status"] for stage in known["stages"]] == ["open"]
    assert [attempt["reason"] for attempt in known["trials"][0]["attempts"]] == ["lost", None]
    second.kill()

    tuner(cluster, "second")
    known = cluster.get(study)
    assert (known["run"], known["past_runs"], known["status"]) == ("second", ["first"], "active")
    assert len(known["trials"][0]["attempts"]) == 1
    assert cluster.get(f"{study}?run=first")["trials"][0]["status"] == "killed"


# Forks until a child has the process id that is asked for, which runs the command.
WITH_PID = """
import os, sys
wanted = int(sys.argv[1])
for _ in range(10_000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last: last.write(str(wanted - 1))
    child = os.fork()
    if not child and os.getpid() == wanted: os.execvp(sys.argv[2], sys.argv[2:])
    if not child: os._exit(0)
    os.waitpid(child, 0)
    if child == wanted: break
"""


@pytest.mark.long
def test_a_process_that_has_a_dead_trainers_id_is_not_marked(cluster: Cluster) -> None:
    cluster.start(*SHORT_GRACE)
    trial = cluster.trial("s/t", leased=False)
    cluster.until(lambda: cluster.is_in_force(trial))
    dead = describe_process(trial.processes[0].pid)
    trial.kill(0)
    reused = cluster.processes(None, *HOSTS, inside={0: (sys.executable, "-c", WITH_PID, str(dead.pid))})
    assert describe_process(dead.pid).start > dead.start, "the process id was not given again"
    assert reused.processes[0].poll() is None
    cluster.until(lambda: status(cluster, "s/t") == "lost")
    cluster.until(lambda: cluster.is_in_force())

    # The agent has not seen the dead process this time.
    cluster.declare("s/late", *HOSTS)
    with cluster.sampled(reused) as seen:
        body = {"pid": dead.pid, "start": dead.start, "namespace": dead.namespace}
        cluster.put("/v1/studies/s/trials/late/workers/0", body)
        cluster.until(lambda: status(cluster, "s/late") == "lost")
    assert set.union(*seen.values()) == {0}
    assert cluster.marks() == {}


CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
WITH_SHELL = (*CONTAINER, "sh", "-c", '"$@"; true', "sh")  # the container's first process is not the trainer


@pytest.mark.long
def test_containers_that_name_their_own_process_ids_get_nobody_marked(cluster: Cluster, cgroup: Path) -> None:
    cluster.start(*SHORT_GRACE)
    into_cgroup = ("sh", "-c", f'echo 0 > {cgroup}/cgroup.procs && exec "$@"', "sh")
    before = {"inside": {0: CONTAINER, 1: WITH_SHELL}, "outside": {0: into_cgroup}}
    contained = cluster.trial("s/contained", leased=False, **before)
    good = cluster.trial("s/good")
    cluster.processes(None, *HOSTS)
    cluster.processes(None, *HOSTS, inside=before["inside"])
    cluster.until(lambda: bool(cluster.known("s/contained")["unattached"]))
    (found,) = cluster.known("s/contained")["unattached"]
    assert (found["rank"], found["agent"]) == (1, "h2")
    assert "attach through the agent" in found["reason"]
    (refused,) = (line for line in cluster.log("processes").splitlines() if "refused" in line)
    assert "s/contained/workers/0: pid: got 1" in refused
    assert "attach through the agent" in refused
    klass = cluster.classes()["s/good"]
    cluster.until(lambda: cluster.marks() == good.marks(klass))

    for rank, host in enumerate(HOSTS):
        contained.tell(f"attach {cluster.agent_socket(host)}", rank)
    cluster.until(lambda: cluster.is_in_force(contained, good))
    assert leased(cluster, "s/contained") == [0, 1]
    assert cluster.known("s/contained")["unattached"] == []
    assert cluster.classes()["s/good"] == klass


@pytest.mark.long
def test_a_stopped_trial_falls_silent_and_has_its_class_again_with_its_next_step(cluster: Cluster) -> None:
    cluster.start("--silence", "3")
    trial = cluster.trial("s/t", leased=False)
    cluster.until(lambda: cluster.is_in_force(trial))
    for process in trial.processes:
        process.send_signal(signal.SIGSTOP)
    cluster.until(lambda: status(cluster, "s/t") == "silent")
    assert cluster.known("s/t")["class"] is None
    cluster.until(lambda: cluster.is_in_force())
    cluster.until(lambda: silent(cluster) == ["study=s trial=t", "study=s"])
    done = cluster.known("s/t")["done"]
    for process in trial.processes:
        process.send_signal(signal.SIGCONT)
    cluster.until(lambda: cluster.is_in_force(trial))
    known = cluster.known("s/t")
    assert known["status"] == "running"
    assert known["done"] > done
    assert [attempt["name"] for attempt in known["attempts"]] == ["first"]


@pytest.mark.long
def test_a_promoted_trial_is_marked_without_a_gap(cluster: Cluster) -> None:
    cluster.start()
    keys = ("s/a", "s/b")
    for key in keys:
        cluster.declare(key, *HOSTS)
    wait_for(cluster, "rung0", 20, *keys)
    promoted, stopped = (cluster.processes(key, *HOSTS, steps=0) for key in keys)
    cluster.until(lambda: cluster.is_in_force(promoted, stopped))
    with cluster.sampled(promoted) as seen:
        for trial in (promoted, stopped):
            trial.tell("train 20")
        cluster.until(lambda: cluster.get("/v1/studies/s/stages/rung0")["status"] == "done")
        cluster.put("/v1/studies/s/trials/b/status", {"status": "killed"})
        wait_for(cluster, "rung1", 40, "s/a")
        promoted.tell("train 40")
        cluster.until(lambda: cluster.is_in_force(promoted))
        cluster.until(lambda: cluster.get("/v1/studies/s/stages/rung1")["status"] == "done")
    assert set.union(*seen.values()) <= codepoints(*range(QUEUES))
    assert [(attempt["name"], attempt["ended_s"]) for attempt in cluster.known("s/a")["attempts"]] == [("first", None)]


def wait_for(cluster: Cluster, rung: str, step: int, *keys: str) -> None:
    cluster.put(f"/v1/studies/s/stages/{rung}", {})
    for key in keys:
        cluster.put(f"/v1/studies/{key.replace('/', '/trials/')}/target", {"step": step, "stage": rung})
    cluster.put(f"/v1/studies/s/stages/{rung}/seal", {})


def test_leases_classes_and_marks_outlive_a_killed_controller(cluster: Cluster) -> None:
    cluster.start(*LONG_GRACE)
    trial, killed = cluster.trial("s/t"), cluster.trial("s/killed")
    cluster.until(lambda: cluster.is_in_force(trial, killed))
    classes, attempts = cluster.classes(), cluster.known("s/t")["attempts"]
    with cluster.sampled(trial) as seen:
        cluster.controller.kill()
        cluster.controller.wait()
        killed.kill(1)
        cluster.start_controller(*LONG_GRACE)
        cluster.until(cluster.answers)
        assert cluster.classes() == classes
        # Since the restart it misses both leases: what its agent has reported again is still running.
        cluster.until(lambda: status(cluster, "s/killed") == "lost")
        cluster.until(lambda: cluster.is_in_force(trial))
    assert cluster.classes() == {"s/t": classes["s/t"]}
    assert cluster.known("s/t")["attempts"] == attempts
    assert ended(cluster) == ["s/killed"]
    assert set.union(*seen.values()) == codepoints(classes["s/t"])


@pytest.mark.long
def test_trials_on_one_host_take_no_class_from_others(cluster: Cluster) -> None:
    cluster.start()
    for key in ("s/a", "s/b"):
        cluster.declare(key, *HOSTS)
    cluster.until(lambda: len(cluster.classes()) == 2)
    alone = sorted(cluster.classes().items())
    cluster.put("/v1/studies/s", {"run": "second"})

    local = [f"local/t{number}" for number in range(10)]
    for key in local:
        cluster.declare(key, "h1", "h1")
    cluster.forked(local, "h1", "h1")
    cluster.until(lambda: all(len(leased(cluster, key)) == 2 for key in local))
    real = [cluster.trial(key) for key in ("s/a", "s/b")]
    cluster.until(lambda: cluster.is_in_force(*real))
    assert sorted(cluster.classes().items()) == alone
    assert [status(cluster, key) for key in local] == ["running"] * len(local)
