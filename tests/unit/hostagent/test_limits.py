"""What an agent refuses of an assignment before it computes anything: numbers without bounds, names that are none, too much."""

import json
import tracemalloc
from typing import Any

import pytest

from beamer.errors import MAX_SHOWN, InputError
from beamer.network.protocol import Assignment, LocalWorker, Port
from beamer.studies.model import Process
from hostagent.desired import desired_state, generation_of, parse_message
from hostagent.limits import (
    MAX_CLASSES,
    MAX_CONNECTIONS,
    MAX_MESSAGE_BYTES,
    MAX_PORTS,
    MAX_RATE_BPS,
    MAX_WORKERS,
    check_shape,
)
from hostagent.queues.tree import MAX_CAPPED, cap_ids
from hostagent.workers import attach

PORT = Port(interface="e0", rate_bps=20_000_000, classify="mark")
WORKER = LocalWorker(job="s/t", rank=0, process=Process(2), klass=2)


def port(**other: object) -> Port:
    return PORT.model_copy(update=other)


def worker(**other: object) -> LocalWorker:
    return WORKER.model_copy(update=other)


def assignment(**fields: object) -> Assignment:
    return Assignment.model_validate({"generation": 1, "ports": (PORT,), "workers": (WORKER,)} | fields)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"generation": -1}, "generation"),
        ({"generation": 2**63}, "generation"),
        ({"queues": 10**30}, "queues"),
        ({"unregistered_share": float("nan")}, "unregistered_share"),
        ({"ports": (PORT, PORT)}, "every interface once"),
        ({"ports": (port(rate_bps=MAX_RATE_BPS + 1),)}, "rate_bps"),
        ({"ports": (port(rate_bps=10**4000),)}, "rate_bps"),
        ({"ports": (port(rate_bps=-1),)}, "rate_bps"),
        ({"ports": (port(frame_bytes=2**40),)}, "frame_bytes"),
        ({"ports": (port(frame_bytes=0),)}, "frame_bytes"),
        ({"workers": (worker(klass=-1),)}, "klass"),
        ({"workers": (worker(klass=10**30),)}, "klass"),
        ({"workers": (worker(cap_bps=-(10**30)),)}, "cap_bps"),
        ({"workers": (worker(rank=2**20 + 1),)}, "rank"),
        ({"workers": (worker(process=Process(10**4000)),)}, "pid"),
        ({"workers": (worker(process=Process(-5)),)}, "pid"),
        ({"workers": (worker(job="j" * 128),)}, "job"),
        ({"workers": (worker(job="a\nb"),)}, "job"),
        ({"workers": tuple(worker(rank=rank) for rank in range(MAX_WORKERS + 1))}, "workers"),
        ({"workers": tuple(worker(job=f"s/{n}", cap_bps=100) for n in range(MAX_CAPPED + 1))}, "cap_bps"),
        ({"ports": tuple(port(interface=f"e{n}") for n in range(MAX_PORTS + 1))}, "ports"),
        (
            {
                "ports": tuple(port(interface=f"e{n}") for n in range(100)),
                "workers": tuple(worker(job=f"s/{n}", cap_bps=100) for n in range(1000)),
            },
            f"at most {MAX_CLASSES} classes",
        ),
    ],
)
def test_numbers_out_of_bounds_are_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        desired_state(assignment(**fields))
    assert len(str(caught.value)) < MAX_SHOWN + 200


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\nb", "a\0b", "a:b", "x" * 16, "é" * 8, "../../etc"])
def test_what_can_be_no_interface_is_refused_before_the_kernel_is_asked(name: str) -> None:
    with pytest.raises(InputError, match="the name of an interface"):
        desired_state(assignment(ports=(port(interface=name),)))


@pytest.mark.parametrize("name", ["lo", "h1-eth0", "e" * 15, "eth0.100", "é"])
def test_what_can_be_an_interface_is_taken(name: str) -> None:
    assert list(desired_state(assignment(ports=(port(interface=name),))).trees) == [name]


def test_the_largest_assignments_are_taken() -> None:
    workers = tuple(worker(job=f"s/{n}", cap_bps=100) for n in range(MAX_CAPPED))
    state = desired_state(assignment(ports=(port(rate_bps=MAX_RATE_BPS),), workers=workers))
    assert len(state.trees["e0"].classes) == MAX_CAPPED + 10
    assert len(set(cap_ids(f"s/{n}" for n in range(MAX_CAPPED)).values())) == MAX_CAPPED
    everything = tuple(worker(rank=rank, process=Process(2**22, 2**40, 2**32, 2**31, True)) for rank in range(MAX_WORKERS))
    connection = {"job": "s/t", "rank": 2**31 - 1, "local_ip": "100.100.100.100", "local_port": 60000}
    connections = [connection | {"remote_ip": "100.100.100.100", "remote_port": 60000}] * 16_000
    frame = assignment(workers=everything, connections=connections).model_dump_json()
    assert len(frame) < MAX_MESSAGE_BYTES
    message = parse_message(frame).message
    assert isinstance(message, Assignment)
    assert desired_state(message).assignment.workers == everything


def test_as_many_workers_are_taken_as_can_attach() -> None:
    assert MAX_WORKERS >= attach.MAX_CONNECTIONS


FULL = {
    "workers": '{"workers": [' + ",".join(["0"] * 1_000_000) + "]}",
    "connections": '{"connections": [' + ",".join(["{}"] * (MAX_CONNECTIONS + 1)) + "]}",
    "keys": "{" + ",".join(f'"{n}":0' for n in range(300_000)) + "}",
    "keys within": '{"workers": [{"process": {' + ",".join(f'"{n}":0' for n in range(300_000)) + "}}]}",
}


@pytest.mark.parametrize("frame", FULL.values(), ids=FULL.keys())
def test_a_message_full_of_what_is_wrong_is_refused_without_a_finding_for_each(frame: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            parse_message(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(frame), "a finding takes more than a thousand bytes"


@pytest.mark.parametrize("frame", ["", "{", "[]", "7", "null", b"\xff", "[" * 100_000, '"' + "x" * 100_000])
def test_what_is_no_object_is_quoted_in_short(frame: str | bytes) -> None:
    with pytest.raises(InputError, match="message") as caught:
        check_shape(frame)
    assert len(str(caught.value)) < MAX_SHOWN


@pytest.mark.parametrize(
    ("content", "generation"),
    [
        ({"generation": 7, "ports": 3}, 7),
        ({"generation": -1}, None),
        ({"generation": 2**63}, None),
        ({"generation": "x"}, None),
        ({}, None),
        ([], None),
    ],
)
def test_what_cannot_be_used_is_answered_under_its_number(content: object, generation: int | None) -> None:
    assert generation_of(json.dumps(content)) == generation
