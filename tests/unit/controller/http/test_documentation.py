"""The page of the HTTP API: all that it loads is the controller's own, and is there."""

import re
import secrets
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from beamer.testing.fabrics import star
from controller.http.documentation import STATIC
from controller.identity.credentials import Credentials
from controller.identity.tokens import TokenKey
from tests.support import plain_http
from tests.support.served_controller import PATIENCE_S, Served, served

ADDRESS = re.compile(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*")
REQUESTED = re.compile(r"@import|url\((?!\s*[\"']?data:)")


class Loaded(HTMLParser):
    """What a page loads. inline: whether it has a script or a style within it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.addresses += [value for name in ("src", "href", "action", "data") if (value := given.get(name))]
        self.inline |= tag == "style" or (tag == "script" and "src" not in given)
        self.inline |= any(name.startswith("on") for name in given)


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A controller that asks for tokens."""
    credentials = Credentials(tokens=TokenKey(secrets.token_bytes(32)))
    with served(star(2), tmp_path_factory.mktemp("documentation") / "journal.db", credentials=credentials) as started:
        yield started


def test_the_page_loads_from_this_controller_alone_and_all_of_it_is_there(controller: Served) -> None:
    url = f"{controller.url}/docs"
    answer = plain_http.get(url, timeout=PATIENCE_S)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = Loaded(answer.text)
    assert not page.inline
    assert not ADDRESS.search(answer.text)
    loaded = [urljoin(url, address) for address in page.addresses if not address.startswith("data:")]
    assert len(loaded) == 3
    for address in loaded:
        assert urlsplit(address).netloc == urlsplit(controller.url).netloc
        found = plain_http.get(address, timeout=PATIENCE_S)
        assert (found.status_code, bool(found.content)) == (200, True), address
        if address.endswith(".css"):
            assert not REQUESTED.search(found.text)
        if address.endswith("start.js"):
            assert not ADDRESS.search(found.text)
            (document,) = re.findall(r'url: "([^"]*)"', found.text)
            assert plain_http.get(urljoin(url, document), timeout=PATIENCE_S).json()["info"]["title"] == "Beamer"


def test_a_browser_is_told_to_load_and_ask_nothing_else(controller: Served) -> None:
    for path in ("/docs", *(f"/docs/{name}" for name in STATIC), "/docs/start.js"):
        policy = plain_http.get(controller.url + path, timeout=PATIENCE_S).headers["content-security-policy"]
        sources = {name: values.split() for name, _, values in (one.strip().partition(" ") for one in policy.split(";"))}
        assert sources["default-src"] == ["'none'"]
        assert sources["script-src"] == ["'self'"]
        for values in sources.values():
            assert set(values) <= {"'none'", "'self'", "'unsafe-inline'", "data:"}


def test_there_is_no_other_page_and_no_way_out_of_its_folder(controller: Served, tmp_path: Path) -> None:
    for path in ("/redoc", "/docs/", "/docs/oauth2-redirect", "/docs/redoc.standalone.js", "/docs/%2e%2e/core.py"):
        assert plain_http.get(controller.url + path, timeout=PATIENCE_S).status_code == 404, path
