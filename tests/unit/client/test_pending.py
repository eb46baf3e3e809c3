"""What waits in the client: its order, which holds between requests that build on each other, and its bounds."""

import itertools
import random

import pytest

from beamer.client.pending import Entry, PendingRequests
from beamer.client.request import Address, PutRequest

NOW = 100.0


def made(text: str) -> PutRequest:
    """Return a request by its path, as `s/trials/t/target`; what follows a blank is the stage that it names."""
    path, _, stage = text.partition(" ")
    study, *rest = path.split("/")
    folder, name = (rest[0], rest[1]) if len(rest) > 1 else ("", "")
    address = Address(study, stage=name if folder == "stages" else None, trial=name if folder == "trials" else None)
    parts = tuple(rest[2:] if folder in ("stages", "trials") else rest)
    request = PutRequest(address, parts, {"stage": stage} if stage else {"n": 1}, progress=parts == ("progress",))
    request.encode()
    return request


def queue(*texts: str, most: int = 1000) -> PendingRequests:
    waiting = PendingRequests(most, 1 << 30)
    for text in texts:
        assert waiting.put(made(text)) == []
    return waiting


def drain(waiting: PendingRequests) -> list[str]:
    """Take everything that can be had now, in order; what cannot is left."""
    found = []
    while (entry := waiting.take(NOW)) is not None:
        found.append(show(entry.request))
        waiting.done(entry)
    return found


def show(request: PutRequest) -> str:
    folder = "stages/" if request.address.stage else "trials/" if request.address.trial else ""
    study, _, name = str(request.address).partition("/")
    stage = f" {request.body['stage']}" if request.body and "stage" in request.body else ""
    return "/".join(part for part in (study, f"{folder}{name}", *request.parts) if part) + stage


def delay(waiting: PendingRequests, until: float = NOW + 1) -> Entry:
    entry = waiting.take(NOW)
    assert entry is not None
    waiting.delay(entry, until)
    return entry


SEARCH = (
    "s",
    "s/stages/r",
    "s/trials/t",
    "s/trials/t/target r",
    "s/trials/t/attempts/1",
    "s/trials/u",
    "s/trials/u/target r",
    "s/trials/t/progress",
    "s/stages/r/seal",
    "s/trials/t/status",
    "s/end",
)


def test_without_delays_the_order_is_that_of_arrival() -> None:
    waiting = queue(*SEARCH, "other", *(f"again-{text}" for text in SEARCH))
    assert drain(waiting) == [*SEARCH, "other", *(f"again-{text}" for text in SEARCH)]
    assert len(waiting) == 0


ATTEMPT = ("s/trials/t/attempts/1", "s/trials/t/progress", "s/trials/t/status")


@pytest.mark.parametrize(
    ("delayed", "held"),
    [
        ("s", SEARCH),
        ("s/stages/r", ("s/trials/t/target r", *ATTEMPT, "s/trials/u/target r", "s/stages/r/seal", "s/end")),
        ("s/trials/t/target r", (*ATTEMPT, "s/stages/r/seal", "s/end")),
        ("s/trials/u", ("s/trials/u/target r", "s/stages/r/seal", "s/end")),
        ("s/trials/t/attempts/1", (*ATTEMPT, "s/end")),
        ("s/end", ()),
    ],
)
def test_what_is_delayed_holds_up_what_builds_on_it_and_nothing_else(delayed: str, held: tuple[str, ...]) -> None:
    waiting = queue(*SEARCH, "v")
    sent: list[str] = []
    while (entry := waiting.take(NOW)) is not None:
        if show(entry.request) == delayed:
            waiting.delay(entry, NOW + 1)
        else:
            sent.append(show(entry.request))
            waiting.done(entry)
    assert sent == [text for text in (*SEARCH, "v") if text not in {delayed, *held}]
    assert waiting.due() == NOW + 1
    entry = waiting.take(NOW + 1)
    assert entry is not None
    assert show(entry.request) == delayed
    waiting.done(entry)
    assert drain(waiting) == [text for text in SEARCH if text in set(held) - {delayed}]


def test_what_is_delayed_may_be_had_at_once() -> None:
    waiting = queue("s", "t")
    delay(waiting)
    delay(waiting, NOW + 2)
    taken = [waiting.take(NOW, at_once=True) for _ in range(3)]
    assert [show(entry.request) for entry in taken if entry] == ["s", "t"]


def test_order_holds_whatever_is_delayed_or_dropped() -> None:
    """Against the definition: of two requests that use a scope, one of which changes it, the first comes first."""
    overtaken = dropped = 0
    for seed in range(100):
        rng = random.Random(seed)
        waiting = PendingRequests(20, 1 << 30)
        sent: list[PutRequest] = []
        put: list[PutRequest] = []
        now = NOW
        while len(put) < 150 or len(waiting):
            now += 1
            if len(put) < 150:
                put.append(made(drawn(rng)))
                for request in waiting.put(put[-1]):
                    put.remove(request)
                    dropped += 1
            for _ in range(rng.randint(0, 3)):
                entry = waiting.take(now)
                if entry is None:
                    break
                if rng.random() < 0.4:
                    waiting.delay(entry, now + rng.randint(1, 20))
                else:
                    sent.append(entry.request)
                    waiting.done(entry)
        number = {id(request): i for i, request in enumerate(put)}
        assert sorted(number[id(request)] for request in sent) == list(range(len(put)))
        for earlier, later in itertools.combinations(sent, 2):
            if number[id(earlier)] > number[id(later)]:
                overtaken += 1
                both = dict(earlier.needs()).keys() & dict(later.needs()).keys()
                assert not any(dict(earlier.needs())[scope] or dict(later.needs())[scope] for scope in both)
        assert waiting._order == waiting._by_trial == waiting._ended == waiting._progress == {}
        assert waiting._bytes == 0
    assert overtaken > 1000, "nothing was independent"
    assert dropped > 100, "nothing was dropped"


def drawn(rng: random.Random) -> str:
    study, trial, stage = rng.choice("sv"), rng.choice("tuwx"), rng.choice("qr")
    paths = (
        *(f"{study}", f"{study}/end", f"{study}/stages/{stage}", f"{study}/stages/{stage}/seal", f"{study}/trials/{trial}"),
        *[f"{study}/trials/{trial}/target {stage}", f"{study}/trials/{trial}/pause", f"{study}/trials/{trial}/status"] * 3,
    )
    return rng.choice(paths)


def test_newer_progress_takes_the_place_of_older() -> None:
    waiting = queue("s/trials/t", "s/trials/t/progress", "s/trials/t/pause")
    for _ in range(1000):
        assert waiting.put(made("s/trials/t/progress")) == []
    assert len(waiting) == 3
    assert drain(waiting) == ["s/trials/t", "s/trials/t/progress", "s/trials/t/pause"]


def test_progress_that_was_not_sent_gives_way_to_newer_and_its_tries_count() -> None:
    waiting = queue("s/trials/t/progress")
    entry = waiting.take(NOW)
    assert entry is not None
    entry.tries = 3
    assert waiting.put(made("s/trials/t/progress")) == []
    waiting.delay(entry, NOW + 1)
    assert len(waiting) == 1
    newer = waiting.take(NOW)
    assert newer is not None
    assert newer.tries == 3


def search(number: int) -> list[str]:
    trial = f"s/trials/t{number}"
    return [trial, f"{trial}/attempts/1", f"{trial}/progress", f"{trial}/status"]


def test_of_trials_that_have_ended_the_first_are_dropped_whole() -> None:
    waiting = queue("s", *search(0), *search(1), "s/trials/runs", most=10)
    assert [show(request) for request in waiting.put(made("s/trials/new"))] == search(0)
    assert drain(waiting) == ["s", *search(1), "s/trials/runs", "s/trials/new"]


def test_the_end_of_a_trial_that_the_controller_knows_is_kept() -> None:
    waiting = queue(*search(0)[1:], "a", most=4)
    assert [show(request) for request in waiting.put(made("b"))] == search(0)[1:3]
    assert [show(request) for request in waiting.put(made("c"))] == []
    assert [show(request) for request in waiting.put(made("d"))] == ["d"], "no more can be dropped of it"
    assert drain(waiting) == ["s/trials/t0/status", "a", "b", "c"]


def test_the_last_is_dropped_where_no_trial_has_ended() -> None:
    waiting = queue("a", "b", "c", most=3)
    assert [show(request) for request in waiting.put(made("d"))] == ["d"]
    assert drain(waiting) == ["a", "b", "c"]


def test_a_trial_that_ends_for_want_of_room_makes_room_itself() -> None:
    waiting = queue("a", "s/trials/t/attempts/1", most=2)
    assert [show(request) for request in waiting.put(made("s/trials/t/status"))] == ["s/trials/t/attempts/1"]
    assert drain(waiting) == ["a", "s/trials/t/status"]
    waiting = queue("a", *search(0)[:3], most=4)
    assert [show(request) for request in waiting.put(made("s/trials/t0/status"))] == search(0)
    assert drain(waiting) == ["a"]


def test_what_was_set_aside_is_dropped_first_and_holds_nothing_up_then() -> None:
    waiting = queue("bad", "bad/trials/t", "s/trials/u/status", "worse", most=4)
    for _ in range(2):
        entry = waiting.take(NOW)
        assert entry is not None
        waiting.set_aside(entry)
        waiting.delay(entry, NOW + 60)
    assert waiting.due() == NOW + 60
    assert [show(request) for request in waiting.put(made("c"))] == ["bad"]
    assert [show(request) for request in waiting.put(made("d"))] == ["s/trials/u/status"], "in the order of their failures"
    assert [show(request) for request in waiting.put(made("e"))] == ["e"], "nothing else is less worth"
    assert drain(waiting) == ["bad/trials/t", "worse", "c", "d"]


def test_newer_progress_is_set_aside_as_the_older_was() -> None:
    waiting = queue("s/trials/t/progress", "a", most=3)
    entry = waiting.take(NOW)
    assert entry is not None
    waiting.set_aside(entry)
    assert waiting.put(made("s/trials/t/progress")) == []
    waiting.delay(entry, NOW + 60)
    assert waiting.put(made("b")) == []
    assert [show(request) for request in waiting.put(made("c"))] == ["s/trials/t/progress"]


def test_what_is_sent_and_not_answered_is_not_dropped() -> None:
    waiting = queue(*search(0), most=4)
    entry = waiting.take(NOW)
    assert entry is not None
    assert [show(request) for request in waiting.put(made("a"))] == search(0)[1:3]
    waiting.delay(entry, NOW + 1)
    assert drain(waiting) == ["a"], "the end follows what it followed"
    assert [show(request) for request in waiting.put(made("b"))] == []
    assert [show(request) for request in waiting.clear()] == ["s/trials/t0", "s/trials/t0/status", "b"]


def test_bytes_are_bounded_too() -> None:
    waiting = PendingRequests(1000, 1000)
    big = PutRequest(Address("s"), body={"x": "y" * 2000})
    big.encode()
    assert waiting.put(big) == [big]
    dropped = [request for i in range(1000) for request in waiting.put(made(f"s{i}"))]
    assert 0 < len(waiting) < 1000
    assert len(dropped) + len(waiting) == 1000


def test_what_is_kept_is_bounded_whatever_comes() -> None:
    waiting = PendingRequests(50, 1 << 20)
    for number in range(5000):
        for text in search(number):
            waiting.put(made(f"free{number}/{text.partition('/')[2]}"))
    assert len(waiting) <= 50
    kept = (
        waiting._aside,
        waiting._order,
        waiting._by_trial,
        waiting._ended,
        waiting._progress,
        waiting._ready,
        waiting._delayed,
    )
    assert all(len(table) <= 3 * 50 for table in kept)


def test_clearing_returns_everything_and_what_was_taken_may_still_be_given_back() -> None:
    waiting = queue("a", "b", "c")
    entry = waiting.take(NOW)
    assert entry is not None
    assert [show(request) for request in waiting.clear()] == ["a", "b", "c"]
    waiting.done(entry)
    waiting.delay(entry, NOW)
    assert len(waiting) == 0
    assert waiting.take(NOW) is None
