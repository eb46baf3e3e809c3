from collections.abc import Sequence

from beamer.gpu.predictors.batch_cache import BatchCache


def test_only_what_is_not_remembered_is_computed_and_in_one_call() -> None:
    calls: list[list[int]] = []

    def squares(keys: Sequence[int]) -> list[int]:
        calls.append(list(keys))
        return [key * key for key in keys]

    cache = BatchCache(squares, most=3)
    assert cache([1, 2, 1]) == [1, 4, 1]
    assert cache([2, 3]) == [4, 9]
    assert cache([]) == []
    assert cache([1, 4]) == [1, 16]  # of 2, 3, 1 and 4, the first was not asked for the longest
    assert cache([3, 2]) == [9, 4]
    assert calls == [[1, 2], [3], [4], [2]]


def test_a_call_with_more_keys_than_are_remembered_has_all_its_values() -> None:
    cache: BatchCache[int, int] = BatchCache(lambda keys: [-key for key in keys], most=2)
    assert cache(range(5)) == [0, -1, -2, -3, -4]
