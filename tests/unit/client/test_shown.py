"""How handles show themselves: in a line, and studies as tables in notebooks."""

import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from beamer.client import Client, StudyHandle
from beamer.client.urls import URL_VARIABLE
from beamer.testing.fabrics import star
from tests.support.served_controller import PATIENCE_S, Served, served

NOBODY = "http://127.0.0.1:9"
HOSTILE = "<script>alert('x')</script>&amp;"


class Shown(HTMLParser):
    """The tags and cells of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def html(study: StudyHandle) -> Shown:
    return Shown(study._repr_html_())


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("BEAMER_AGENT", str(tmp_path / "none.sock"))
    with served(star(2), tmp_path / "journal.db") as started:
        yield started


def test_handles_name_what_they_are_of_and_where() -> None:
    with Client(NOBODY) as client:
        study = client.study("resnet", run="r1")
        trial = study.trial("lr=0.1")
        assert repr(client) == f"<Client at {NOBODY}>"
        assert repr(study) == f"<Study 'resnet' run 'r1' at {NOBODY}>"
        assert repr(study.stage("rung0")) == f"<Stage 'rung0' of 'resnet' at {NOBODY}>"
        assert repr(trial) == f"<Trial 'lr=0.1' of 'resnet' at {NOBODY}>"
        assert repr(trial.attach(rank=0)) == f"<Attachment of rank 0 to {trial!r} by its process id>"
        client.close(0.0)


def test_a_client_without_a_controller_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "ftp://nowhere")
    with Client() as client:
        assert repr(client) == "<Client at no controller>"
        assert html(client.study("s", run="r")).tags == {"p"}


def test_a_notebook_shows_stages_and_trials(controller: Served) -> None:
    with Client(controller.url, timeout_s=PATIENCE_S) as client:
        study = client.study("resnet", run="r1")
        with study.stage("rung0") as stage:
            for name in ("a", HOSTILE):
                stage.add(study.trial(name), step=5)
        trial = client.trial("resnet", "a", run="r1")
        trial.start(["h1", "h2"], sync_bytes=1_000_000)
        trial.progress(3, loss=0.5)
        assert client.flush(PATIENCE_S)
        shown = html(study)
        assert shown.tags == {"p", "table", "thead", "tbody", "tr", "th", "td"}
        for text in (f"{study!r}: active", "rung0", "0/2", HOSTILE, "h1, h2", "0.5"):
            assert text in shown.texts
        study.end()


def test_without_a_controller_a_notebook_shows_the_name_in_a_bounded_time() -> None:
    with Client(NOBODY) as client:
        study = client.study(HOSTILE, run="r1")
        began_s = time.monotonic()
        shown = html(study)
        assert time.monotonic() - began_s < 5
        assert (shown.tags, shown.texts) == ({"p"}, [repr(study)])
        client.close(0.0)


@pytest.mark.parametrize(
    "answer", [{}, {"stages": 1, "trials": []}, {"status": "active", "stages": [{}], "trials": []}, [], None]
)
def test_a_notebook_goes_on_whatever_is_answered(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(NOBODY) as client:
        study = client.study("s", run="r1")
        monkeypatch.setattr(study._outbox, "poll", lambda address, until, timeout_s: until(answer))
        assert html(study).texts == [repr(study)]
        monkeypatch.undo()
        client.close(0.0)
