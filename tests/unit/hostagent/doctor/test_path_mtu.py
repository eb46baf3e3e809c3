"""The search for the largest packet that arrives, and what is said of it."""

import math

import pytest

from beamer.doctor.findings import CheckVerdict, Finding
from beamer.errors import PlatformError
from hostagent.doctor.path_mtu import LEAST_BYTES, MOST_BYTES, PathMtu, judge_path, largest, measure


@pytest.mark.parametrize("most", [LEAST_BYTES, 1500, 9000, MOST_BYTES])
@pytest.mark.parametrize("limit", [0, 575, 576, 577, 1280, 1400, 1499, 1500, 9000, 65_535])
def test_the_largest_size_that_passes_is_found_in_few_questions(most: int, limit: int) -> None:
    asked: list[int] = []

    def passes(size: int) -> bool:
        asked.append(size)
        return size <= limit

    found = largest(most, passes)
    assert found == (min(limit, most) if limit >= LEAST_BYTES else 0)
    assert len(asked) <= 2 + math.ceil(math.log2(max(most - LEAST_BYTES, 1))) <= 18
    assert all(LEAST_BYTES <= size <= most for size in asked)


def one(path: PathMtu) -> Finding:
    (found,) = judge_path(path)
    return found


def test_a_path_that_carries_less_than_the_interface_sends_is_a_fault() -> None:
    assert one(PathMtu("10.0.0.2", "ens1", 9000, 9000)).verdict is CheckVerdict.OK
    assert one(PathMtu("10.0.0.2", "ens1", 9000, 0)).verdict is CheckVerdict.NOT_CHECKED
    found = one(PathMtu("10.0.0.2", "ens1", 9000, 1500))
    assert (found.verdict, found.found) == (
        CheckVerdict.FAULT,
        "packets of 9000 bytes do not pass from ens1 to 10.0.0.2, and those of 1500 do",
    )
    assert "ip link set ens1 mtu 1500" in found.fix


def test_this_machine_answers_itself() -> None:
    try:
        assert measure("127.0.0.1", "lo", 65_536) == PathMtu("127.0.0.1", "lo", MOST_BYTES, MOST_BYTES)
    except PlatformError:
        pytest.skip("this user may send no ICMP echo requests")
