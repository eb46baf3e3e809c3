"""The pages of the reference are what the code makes, and show nothing of Python's own where a meaning is to stand."""

from pathlib import Path

import pytest

from tests.support.checkout import ROOT

EXTENSIONS = ROOT / "docs" / "_ext"
FOLDER = ROOT / "docs" / "reference" / "generated"
INTERNAL = ("tuple[]", "PydanticUndefined", "FieldInfo", "Annotated[", " object at 0x", "<class", "<EndReason")


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    import reference

    return {name: page() for name, page in reference.PAGES.items()}


def test_pages_are_what_the_code_makes(pages: dict[str, str]) -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*pages}
    old = [name for name, text in pages.items() if (FOLDER / f"{name}.md").read_text("utf-8") != text]
    assert old == [], "run `make docs`"


def test_pages_show_nothing_internal(pages: dict[str, str]) -> None:
    assert len(pages) >= 8
    for name, text in pages.items():
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len(rows) > 5, name
        assert not [row for row in rows if any(one in row for one in INTERNAL)], name


def test_every_key_of_files_and_every_limit_has_a_meaning(pages: dict[str, str]) -> None:
    for name in ("files", "settings"):
        lacking = [line for line in pages[name].splitlines() if line.startswith("| `") and line.endswith("|  |")]
        assert lacking == []


def test_a_field_and_its_docstring_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    from reference.fields import documented

    from controller.limits import Limits

    first = next(iter(documented(Limits)))
    assert (first.name, first.kind, first.default) == ("body_bytes", "int", str(Limits().body_bytes))
    assert first.text.startswith("Bytes of a request's body.")
