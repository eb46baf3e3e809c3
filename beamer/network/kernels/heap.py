"""Two heaps of numbered elements, smallest key first; equal keys come smallest number first.

Indexed binary heap (`push`, `remove`, `heapify`): a record array (`state.HEAP`) with one record per element and one more. The
heap's elements are in `item` from 0 on; `position` is an element's index there (-1: not in the heap) and `key` its key. The
last record's `position` is the heap's size. Invariant: no element precedes its parent, and `position` inverts `item`. O(log n)
for `push` (insertion or new key) and `remove` (of any element), O(n) for `heapify`, O(1) for the least element.

Skew heap of flows (`meld`): linked by `left` and `right`, with `finish` as the key. Sleator, Tarjan 1986 (SIAM J. Comput. 15):
amortised O(log n) for joining two heaps, and so for insertion and removal of the least.
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
        heap[above].position = at
        at = parent
    heap[at].item = item
    heap[item].position = at


@inner
def _down(heap: Records, at: int) -> None:
    item = heap[at].item
    count = heap[len(heap) - 1].position
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _before(heap, heap[child + 1].item, heap[child].item):
            child += 1
        below = heap[child].item
        if not _before(heap, below, item):
            break
        heap[at].item = below
        heap[below].position = at
        at = child
    heap[at].item = item
    heap[item].position = at


@inner
def size(heap: Records) -> int:
    """Return the number of elements."""
    return int(heap[len(heap) - 1].position)


@inner
def push(heap: Records, item: int, key: float) -> None:
    """Insert `item` with `key`, or change its key."""
    heap[item].key = key
    if heap[item].position < 0:
        end = heap[len(heap) - 1].position
        heap[len(heap) - 1].position += 1
        heap[end].item = item
        heap[item].position = end
    _up(heap, heap[item].position)
    _down(heap, heap[item].position)


@inner
def remove(heap: Records, item: int) -> None:
    """Remove `item`, wherever it is; do nothing if it is not in the heap."""
    at = heap[item].position
    if at < 0:
        return
    heap[item].position = -1
    heap[len(heap) - 1].position -= 1
    end = heap[len(heap) - 1].position
    if at < end:
        moved = heap[end].item
        heap[at].item = moved
        heap[moved].position = at
        _up(heap, at)
        _down(heap, heap[moved].position)


@inner
def empty(heap: Records) -> None:
    """Remove all elements."""
    for at in range(heap[len(heap) - 1].position):
        heap[heap[at].item].position = -1
    heap[len(heap) - 1].position = 0


@inner
def append(heap: Records, item: int, key: float) -> None:
    """Append `item`, which is not in the heap, without restoring the order; `heapify` has to follow."""
    end = heap[len(heap) - 1].position
    heap[len(heap) - 1].position += 1
    heap[end].item = item
    heap[item].position = end
    heap[item].key = key


@inner
def heapify(heap: Records) -> None:
    """Restore the order after `append`, bottom-up."""
    for at in range(heap[len(heap) - 1].position // 2 - 1, -1, -1):
        _down(heap, at)


@inner
def meld(motion: Records, one: int, other: int) -> int:
    """Join two skew heaps by their roots (-1: empty) and return the root of both."""
    if one < 0:
        return other
    if other < 0:
        return one
    if motion[other].finish < motion[one].finish or (motion[other].finish == motion[one].finish and other < one):
        one, other = other, one
    root = node = one
    while True:  # The heaps merge along the right spines, and every node on the way exchanges its children.
        down = motion[node].right
        motion[node].right = motion[node].left
        if down < 0:
            motion[node].left = other
            return root
        if motion[other].finish < motion[down].finish or (motion[other].finish == motion[down].finish and other < down):
            down, other = other, down
        motion[node].left = down
        node = down
