"""A client of several controllers: everything reaches the one that leads, whichever that is by then."""

from collections.abc import Iterator

import pytest

from beamer.client import RUN_VARIABLE, Client
from beamer.errors import InputError
from tests.support.fake_controller import PATIENCE_S, FakeBeamer, refusal

FOLLOWING = (503, refusal("this controller follows another one, which leads"))
LEADING = (200, {"changed": True})


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeBeamer, FakeBeamer]]:
    monkeypatch.setenv(RUN_VARIABLE, "one")
    both = FakeBeamer(), FakeBeamer()
    yield both
    for fake in both:
        fake.stop()


def _lead(leader: FakeBeamer, follower: FakeBeamer) -> None:
    leader.answer = lambda method, path: LEADING
    follower.answer = lambda method, path: FOLLOWING


def test_requests_go_to_the_one_that_leads(pair: tuple[FakeBeamer, FakeBeamer]) -> None:
    first, second = pair
    _lead(second, first)
    client = Client(f"{first.url}, {second.url}", timeout_s=PATIENCE_S)
    trial = client.trial("s", "t")
    trial.progress(1)
    assert client.flush(PATIENCE_S)
    trial.progress(2)
    assert client.flush(PATIENCE_S)
    assert [body["step"] for _, body in second.received] == [1, 2]
    _lead(first, second)
    trial.progress(3)
    assert client.flush(PATIENCE_S)
    first.stop()  # killed, and the other one leads by the time that it is asked again
    _lead(second, first)
    trial.progress(4)
    assert client.flush(PATIENCE_S)
    client.close(PATIENCE_S)
    assert [body["step"] for _, body in first.received] == [3]
    assert [body["step"] for _, body in second.received] == [1, 2, 4]


def test_each_of_them_has_to_be_a_url() -> None:
    with pytest.raises(InputError, match="url: got 'http:/'"):
        Client("http://127.0.0.1:1,http:/")
