"""The report: everything that docs show of experiments is on the page, with where it is from, and the page loads nothing."""

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

from beamer.errors import InputError
from eval.documents import SECTION, rewritten
from eval.published import read_published
from eval.report import exhibits as module
from eval.report import published
from eval.report.exhibits import ByHand, Exhibit, PictureOrigin, ReportConfig, exhibits, read_config
from eval.report.origins import DocsSection, Origin, all_sections, of_publications
from eval.report.page import html_page, rendered
from eval.report.parts import DOCUMENTS, PICTURE, ROOT, SECTION_KIND, DocumentPart, everything, parser, parts_of
from eval.report.text import Chapter, chapters, summary
from eval.studies import AWAITED

RENEW = "run `python -m eval report --docs`"
MEASURED = re.compile(r"\d\.\d|\d %")  # a table most of whose rows have such cells is one of figures


@pytest.fixture(scope="module")
def sections() -> Mapping[str, DocsSection]:
    return all_sections()


@pytest.fixture(scope="module")
def report(sections: Mapping[str, DocsSection]) -> list[Chapter]:
    return chapters(read_config(), sections, ROOT)


@pytest.fixture(scope="module")
def page(report: list[Chapter]) -> str:
    return html_page(report, ROOT)


class Elements(HTMLParser):
    """The elements of a page: what they load, where they are, whether each is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.keys: list[str] = []
        self.targets: list[str] = []
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            (self.keys if name == "id" else self.targets if name == "href" else self.loads if name == "src" else []).append(
                value or ""
            )

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)


def is_awaited(section: str) -> bool:
    """Return whether a section is of a study that has not been run on the machine that it needs: it is listed as missing."""
    return section.partition(" ")[0] in {one.command for one in AWAITED if not one.results.exists()}


def shown(*kinds: tuple[str, str], config: ReportConfig | None = None, **sections: DocsSection) -> list[Exhibit]:
    """Return what is shown of parts of a document, by kind and text."""
    parts = [DocumentPart("docs/d.md", "Heading", kind, text) for kind, text in kinds]
    config = config or ReportConfig(pictures=(), by_hand=(), negative=())
    return list(exhibits(config, {name.replace("_", " "): one for name, one in sections.items()}, ROOT, parts))


@pytest.mark.long
def test_every_section_of_the_documents_is_on_the_page_and_has_its_figures(
    sections: Mapping[str, DocsSection], page: str
) -> None:
    names = [match["name"] for path in DOCUMENTS for match in SECTION.finditer(path.read_text())]
    assert len(names) == len(set(names)) > 40
    for name in names:
        if not is_awaited(name):
            assert rendered(parser(), sections[name].text, ROOT) in page, name


def test_the_figures_on_the_page_are_those_of_the_documents(sections: Mapping[str, DocsSection]) -> None:
    for path in DOCUMENTS:
        text = path.read_text()
        assert rewritten(text, {name: one.text for name, one in sections.items()}) == text, RENEW


def test_every_figure_has_its_command_seeds_config_results_and_machine(report: list[Chapter]) -> None:
    entries = [entry for chapter in report for entry in chapter.entries if entry.index is not None]
    entries = [entry for entry in entries if not is_awaited(entry.title.partition(": eval ")[2])]
    assert len(entries) > 40
    for entry in entries:
        for name in ("command", "seeds", "config", "results", "machine"):
            assert re.search(rf"^\| {name} \| \S.* \|$", entry.index or "", re.MULTILINE), entry.title


def test_files_that_origins_name_are_there(sections: Mapping[str, DocsSection]) -> None:
    shown = [one.origin for one in exhibits(read_config(), sections, ROOT) if one.origin]
    named = {
        path for origin in shown for path in (*origin.config.split(", "), origin.results) if path.endswith((".yaml", ".json"))
    }
    assert len(named) > 10
    assert {path for path in named if not (ROOT / path).is_file()} == set()


def test_a_section_without_results_is_listed_as_missing(
    sections: Mapping[str, DocsSection], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: one for name, one in sections.items() if name != "network mixed"}
    found = chapters(read_config(), known, ROOT)
    (missing,) = (chapter for chapter in found if chapter.key == "missing")
    assert re.search(
        r"^\| eval network mixed \| docs/experiments/network.md \| .* \| no committed figures \|$", missing.text, re.MULTILINE
    )
    (entry,) = (entry for chapter in found for entry in chapter.entries if entry.title.endswith(": eval network mixed"))
    assert entry.text.strip() == "**Missing: no committed figures.**"
    assert "eval network mixed" in html_page([missing], ROOT)


def test_a_figure_without_a_committed_source_is_listed_as_such(report: list[Chapter]) -> None:
    (missing,) = (chapter for chapter in report if chapter.key == "missing")
    for one in read_config().by_hand:
        assert (f"| {one.title} (written by hand) |" in missing.text) == (not one.results), one.title


def test_what_a_figure_lacks_is_said() -> None:
    origin = Origin("command", results="results.json")
    hand = ByHand(document="docs/d.md", title="by hand", phrase="12.5", command="command")
    config = ReportConfig(pictures=(PictureOrigin(name="network-*.png", like="a b"),), by_hand=(hand,), negative=())
    kinds = [(SECTION_KIND, "a b"), (SECTION_KIND, "a c"), (SECTION_KIND, "report d"), ("table", "| 12.5 |")]
    kinds += [(PICTURE, f"docs/images/{name}.png") for name in ("network-spread", "no", "gpu-regions-ones")]
    found = shown(*kinds, config=config, a_b=DocsSection("text", origin))
    assert {one.name: one.missing for one in found} == {
        "eval a b": "",
        "eval a c": "no committed figures",
        "by hand (written by hand)": "no committed source",
        "network-spread.png": "",
        "no.png": "no such file",
        "gpu-regions-ones.png": "no known origin",
    }


def test_a_phrase_is_of_one_part_of_its_document() -> None:
    for texts in ((), ("| 12.5 |", "| 12.5 ms |")):
        config = ReportConfig(
            pictures=(), by_hand=(ByHand(document="docs/d.md", title="t", phrase="12.5", command="c"),), negative=()
        )
        with pytest.raises(InputError, match=f"not of {len(texts)}"):
            shown(("table", "other"), *(("table", text) for text in texts), config=config)


def test_every_table_of_figures_and_every_picture_is_shown(sections: Mapping[str, DocsSection]) -> None:
    """A table that somebody writes by hand has to be entered in the config."""
    known = [one.part for one in exhibits(read_config(), sections, ROOT)]
    assert all(one.origin for one in exhibits(read_config(), sections, ROOT) if one.part.kind == PICTURE)
    figures = []
    for part in everything():
        head, *rows = part.text.splitlines()
        rows = rows[1:]
        of_figures = sum(bool(MEASURED.search(row.partition("|")[2].partition("|")[2])) for row in rows) * 2 > len(rows)
        if part.kind == "table" and of_figures:
            figures.append(part)
            assert part in known, f"{part.document}: {head}: enter it in {module.CONFIG}"
    assert len(figures) > 5


def test_the_page_is_well_formed_and_loads_nothing(page: str) -> None:
    elements = Elements(page)
    assert elements.open == []
    assert elements.tags.isdisjoint({"script", "link", "iframe", "object", "embed", "base", "form"})
    assert len(elements.loads) == sum(part.kind == PICTURE for part in everything())
    assert all(one.startswith("data:image/png;base64,") for one in elements.loads)
    assert not re.search(r"url\(|@import|srcset|https?:", page.partition("</style>")[0])
    assert not [one for one in elements.targets if not one.startswith("#")]


def test_the_contents_lead_to_every_chapter_and_entry(page: str, report: list[Chapter]) -> None:
    elements = Elements(page)
    keys = [key for chapter in report for key in (chapter.key, *(entry.key for entry in chapter.entries))]
    assert elements.keys == keys
    assert sorted(elements.targets) == sorted(f"#{key}" for key in keys)
    assert len(keys) == len(set(keys))


def test_html_and_links_of_documents_are_shown_as_text(tmp_path: Path) -> None:
    html = rendered(parser(), "<script>1</script>\n\na <b>b</b> [link](https://h/x) `<i>`\n", tmp_path)
    assert "https" not in html
    assert Elements(html).tags <= {"p", "code", "pre"}
    assert all(text in html for text in ("&lt;script&gt;", "&lt;b&gt;", "link", "&lt;i&gt;"))


def test_parts_have_their_headings_and_sections_their_places() -> None:
    text = (
        "# One\n\ntext\n\n<!-- begin: eval a b -->\n| old |\n|---|\n<!-- end -->\n\n## Two\n\n| x |\n|---|\n| 1.5 |\n\n"
        "![title](images/p.png)\n"
    )
    found = [(one.heading, one.kind, one.text) for one in parts_of("docs/d.md", text)]
    assert found == [
        ("One", "heading", "# One"),
        ("One", "paragraph", "text"),
        ("One", SECTION_KIND, "a b"),
        ("Two", "heading", "## Two"),
        ("Two", "table", "| x |\n|---|\n| 1.5 |"),
        ("Two", PICTURE, "docs/images/p.png"),
    ]


def test_reasons_are_in_the_documents_and_written_once() -> None:
    texts = {path: path.read_text() for path in DOCUMENTS}
    for name, section in of_publications().items():
        assert sum(f"<!-- begin: eval {name} -->" in text for text in texts.values()) == 1, name
        first = section.text.partition("\n")[0]
        assert sum(text.count(first) for text in texts.values()) == 1, name


def test_every_idea_stands_beside_ours() -> None:
    found = {one.publication.title: one for one in published.comparisons()}
    assert list(found) == ["Hermes", "Beamer", "ONES", "SC'20 (elastic)", "Optimus"]
    for one in found.values():
        assert len(one.rows) >= len(one.publication.factors)
        assert one.publication.why
    rows = {(row.idea, row.title): row for one in found.values() for row in one.rows}
    assert not rows["Optimus", "mean JCT, drf"].reached
    assert rows["Optimus", "mean JCT, drf"].grid.startswith("none of ")
    assert rows["ONES", "mean JCT, drl"].ours == published.NOT_RUN
    assert rows["SC'20 (elastic)", "mean JCT, k8s-default"].reached


def test_published_factors_are_those_of_the_claims() -> None:
    for one in read_published().values():
        for factor in one.factors:
            assert factor.factor is not None or not factor.searched


def test_what_is_reached_nowhere_is_among_the_negative_results(report: list[Chapter]) -> None:
    (chapter,) = (one for one in report if one.key == "negative")
    texts = {entry.title: entry.text for entry in chapter.entries}
    assert "| optimus | mean JCT, drf | 2.39 | 360 |" in texts["Published factors that appear nowhere in a grid"]
    assert "slaq" not in texts["Published factors that appear nowhere in a grid"]
    policies = next(text for title, text in texts.items() if title.startswith("Network policies against fair"))
    assert re.search(r"^\| beamer \| \d+ \| 0 \|", policies, re.MULTILINE)
    assert len(texts) > len(read_config().negative)


@pytest.mark.long
def test_the_report_is_the_same_each_time(sections: Mapping[str, DocsSection], report: list[Chapter], page: str) -> None:
    again = chapters(read_config(), all_sections(), ROOT)
    assert html_page(again, ROOT) == page
    assert summary(again) == summary(report)


def test_the_summary_has_origins_in_place_of_the_documents_tables(
    report: list[Chapter], sections: Mapping[str, DocsSection]
) -> None:
    text = summary(report)
    assert "why they differ" in text
    assert "`python -m eval network --docs`" in text
    assert sections["network mixed"].text not in text
    assert text.count("\n### ") == sum(len(chapter.entries) for chapter in report)
