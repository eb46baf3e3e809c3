"""The two heaps against sorted lists."""

import heapq
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamer.network.arrays import Records
from beamer.network.kernels import heap as inner
from beamer.network.kernels.state import HEAP, MOTION
from beamer.testing.profile import PROFILE

ITEMS = 12


def callable_here(function: Any) -> Any:
    """Compile a kernel that only kernels call, so that Python can."""
    return numba.njit(function.py_func)


NAMES = ("size", "push", "remove", "append", "heapify", "empty", "meld")
kernels = SimpleNamespace(**{name: callable_here(getattr(inner, name)) for name in NAMES})

KEYS = st.sampled_from((-1.0, 0.0, 0.0, 1.0, 2.5, 1e300))
STEPS = st.lists(st.tuples(st.sampled_from(("push", "remove", "pop", "empty", "append")), st.integers(0, ITEMS - 1), KEYS))


def indexed() -> Records:
    heap = np.zeros(ITEMS + 1, HEAP)
    heap["position"][:ITEMS] = -1
    return heap


def drained(heap: Records) -> list[tuple[float, int]]:
    out: list[tuple[float, int]] = []
    while kernels.size(heap):
        item = int(heap[0]["item"])
        out.append((float(heap[item]["key"]), item))
        kernels.remove(heap, item)
    return out


@PROFILE
@given(STEPS)
def test_an_indexed_heap_holds_what_was_put_in_and_gives_it_back_in_order(steps: list[tuple[str, int, float]]) -> None:
    heap, keys = indexed(), dict[int, float]()
    for step, item, key in steps:
        if step == "push":
            kernels.push(heap, item, key)
            keys[item] = key
        elif step == "append" and item not in keys:
            kernels.append(heap, item, key)
            kernels.heapify(heap)
            keys[item] = key
        elif step == "remove":
            kernels.remove(heap, item)
            keys.pop(item, None)
        elif step == "empty" and item == 0:
            kernels.empty(heap)
            keys = {}
        elif step == "pop" and keys:
            first = min((key, item) for item, key in keys.items())
            assert (heap[heap[0]["item"]]["key"], heap[0]["item"]) == first
            kernels.remove(heap, first[1])
            del keys[first[1]]
        assert kernels.size(heap) == len(keys)
        assert {i for i in range(ITEMS) if heap[i]["position"] >= 0} == keys.keys()
    plain = [(key, item) for item, key in keys.items()]
    heapq.heapify(plain)
    assert drained(heap) == [heapq.heappop(plain) for _ in range(len(plain))]


@PROFILE
@given(st.lists(KEYS, min_size=ITEMS, max_size=ITEMS))
def test_a_heap_made_at_once_is_in_order(keys: list[float]) -> None:
    heap = indexed()
    for item, key in enumerate(keys):
        kernels.append(heap, item, key)
    kernels.heapify(heap)
    assert drained(heap) == sorted((key, item) for item, key in enumerate(keys))


def test_removing_what_is_not_in_does_nothing() -> None:
    heap = indexed()
    kernels.push(heap, 3, 1.0)
    kernels.remove(heap, 4)
    assert drained(heap) == [(1.0, 3)]


@PROFILE
@given(st.lists(st.none() | KEYS, max_size=40))
def test_a_skew_heap_gives_flows_back_by_mark(steps: list[float | None]) -> None:
    motion = np.zeros(len(steps), MOTION)
    motion["left"] = motion["right"] = -1
    top, inside = -1, list[tuple[float, int]]()
    for flow, mark in enumerate(steps):
        if mark is not None:
            motion["finish"][flow] = mark
            top = kernels.meld(motion, top, flow)
            heapq.heappush(inside, (mark, flow))
        elif inside:
            assert (motion["finish"][top], top) == heapq.heappop(inside)
            top = kernels.meld(motion, motion["left"][top], motion["right"][top])
    while inside:
        assert (motion["finish"][top], top) == heapq.heappop(inside)
        top = kernels.meld(motion, motion["left"][top], motion["right"][top])
    assert top == -1


@pytest.mark.parametrize("ascending", [True, False])
def test_a_long_chain_needs_no_stack(ascending: bool) -> None:
    count = 20_000
    motion = np.zeros(count, MOTION)
    motion["left"] = motion["right"] = -1
    motion["finish"] = np.arange(count) if ascending else np.arange(count)[::-1]
    top = -1
    for flow in range(count):
        top = kernels.meld(motion, top, flow)
    for finish in range(count):
        assert motion["finish"][top] == finish
        top = kernels.meld(motion, motion["left"][top], motion["right"][top])
