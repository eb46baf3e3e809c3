"""Two heaps over numbered things, smallest key first; equal keys come smallest number first.

An *indexed* binary heap is a record array (`state.HEAP`) with a record for each number and one more: numbers
stand in `item` from 0 on, `place` says where each stands (-1: nowhere) and `key` is its key; `place` of the last record is how
many are in. `meld` joins two *skew* heaps of flows, linked by `left` and `right`, with their `mark` as the key.
"""

from beamer.network.arrays import Records
from beamer.network.kernels.jit import inner


@inner
def _before(heap: Records, one: int, other: int) -> bool:
    return bool(heap[one].key < heap[other].key or (heap[one].key == heap[other].key and one < other))


@inner
def _up(heap: Records, at: int) -> None:
    item = heap[at].item
    while at > 0:
        parent = (at - 1) >> 1
        above = heap[parent].item
        if not _before(heap, item, above):
            break
        heap[at].item = above
        heap[above].place = at
        at = parent
    heap[at].item = item
    heap[item].place = at


@inner
def _down(heap: Records, at: int) -> None:
    item = heap[at].item
    many = heap[len(heap) - 1].place
    while True:
        child = 2 * at + 1
        if child >= many:
            break
        if child + 1 < many and _before(heap, heap[child + 1].item, heap[child].item):
            child += 1
        below = heap[child].item
        if not _before(heap, below, item):
            break
        heap[at].item = below
        heap[below].place = at
        at = child
    heap[at].item = item
    heap[item].place = at


@inner
def size(heap: Records) -> int:
    """Return how many are in."""
    return int(heap[len(heap) - 1].place)


@inner
def push(heap: Records, item: int, key: float) -> None:
    """Put `item` in with `key`, or move it to where that belongs."""
    heap[item].key = key
    if heap[item].place < 0:
        end = heap[len(heap) - 1].place
        heap[len(heap) - 1].place += 1
        heap[end].item = item
        heap[item].place = end
    _up(heap, heap[item].place)
    _down(heap, heap[item].place)


@inner
def remove(heap: Records, item: int) -> None:
    """Take `item` out, wherever it stands; do nothing if it is not in."""
    at = heap[item].place
    if at < 0:
        return
    heap[item].place = -1
    heap[len(heap) - 1].place -= 1
    end = heap[len(heap) - 1].place
    if at < end:
        moved = heap[end].item
        heap[at].item = moved
        heap[moved].place = at
        _up(heap, at)
        _down(heap, heap[moved].place)


@inner
def empty(heap: Records) -> None:
    """Take all out."""
    for at in range(heap[len(heap) - 1].place):
        heap[heap[at].item].place = -1
    heap[len(heap) - 1].place = 0


@inner
def append(heap: Records, item: int, key: float) -> None:
    """Put `item`, which is not in, behind all others; `heapify` has to follow."""
    end = heap[len(heap) - 1].place
    heap[len(heap) - 1].place += 1
    heap[end].item = item
    heap[item].place = end
    heap[item].key = key


@inner
def heapify(heap: Records) -> None:
    """Restore the order after `append`."""
    for at in range(heap[len(heap) - 1].place // 2 - 1, -1, -1):
        _down(heap, at)


@inner
def meld(motion: Records, one: int, other: int) -> int:
    """Join two skew heaps by their roots (-1: empty) and return the root of both."""
    if one < 0:
        return other
    if other < 0:
        return one
    if motion[other].mark < motion[one].mark or (motion[other].mark == motion[one].mark and other < one):
        one, other = other, one
    root = node = one
    while True:
        down = motion[node].right
        motion[node].right = motion[node].left
        if down < 0:
            motion[node].left = other
            return root
        if motion[other].mark < motion[down].mark or (motion[other].mark == motion[down].mark and other < down):
            down, other = other, down
        motion[node].left = down
        node = down
