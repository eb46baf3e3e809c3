"""Whether an address can be listened on, and who does instead."""

import errno
import os
import socket

import pytest

from beamer.doctor.findings import CheckVerdict
from beamer.errors import InputError
from controller.doctor.listening import (
    AddressFacts,
    Holder,
    holder_of,
    judge_addresses,
    judge_exposure,
    judge_time,
    try_address,
)


def test_an_address_that_is_free_or_taken_is_found_with_who_holds_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        taken = try_address("--http", address)
        assert taken.problem == errno.EADDRINUSE
        assert taken.holder is not None
        assert taken.holder.pid == os.getpid()
        assert holder_of(server.getsockname()[1]) == taken.holder
    assert try_address("--http", address) == AddressFacts("--http", address)
    assert try_address("--http", "192.0.2.99:80").problem == errno.EADDRNOTAVAIL


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="--openflow"):
        try_address("--openflow", address)


@pytest.mark.parametrize("name", ["host.invalid", "host..invalid"])
def test_a_name_that_is_not_found_is_a_fault(name: str) -> None:
    tried = try_address("--http", f"{name}:80")
    assert tried.not_found
    (found,) = judge_addresses([tried])
    assert (found.verdict, found.found) == (
        CheckVerdict.FAULT,
        f"{name}:80 (--http): the name is not found ({tried.not_found})",
    )
    assert found.fix.startswith("give --http an address that `ip address` shows, or add the name to /etc/hosts")


@pytest.mark.parametrize(
    ("problem", "holder", "verdict", "fix"),
    [
        (0, None, CheckVerdict.OK, ""),
        (errno.EADDRINUSE, Holder(7, "/opt/beamer/bin/python /opt/beamer/bin/beamer-controller --fabric"), CheckVerdict.OK, ""),
        (errno.EADDRINUSE, Holder(7, "nginx: master"), CheckVerdict.FAULT, "kill 7"),
        (errno.EADDRINUSE, None, CheckVerdict.FAULT, "ss -ltnp 'sport = :8657'"),
        (errno.EADDRNOTAVAIL, None, CheckVerdict.FAULT, "ip address"),
        (errno.EACCES, None, CheckVerdict.FAULT, "give another address with --http"),
    ],
)
def test_each_obstacle_has_its_fix(problem: int, holder: Holder | None, verdict: CheckVerdict, fix: str) -> None:
    (found,) = judge_addresses([AddressFacts("--http", "10.0.0.1:8657", problem, holder)])
    assert found.verdict is verdict
    assert fix in found.fix
    assert "10.0.0.1:8657 (--http)" in found.found


def test_exposure_and_the_clock_are_judged() -> None:
    (fine,), (exposed,) = judge_exposure(None), judge_exposure(InputError("--http", "0.0.0.0:8657", "a loopback address"))
    assert (fine.verdict, exposed.verdict) == (CheckVerdict.OK, CheckVerdict.FAULT)
    assert exposed.fix == "give a loopback address"
    assert [one.verdict for flag in (True, False) for one in judge_time(flag)] == [CheckVerdict.OK, CheckVerdict.WARNING]
