"""The documentation names files that exist, is as short as it says, and says of each block of code how it is checked."""

import re
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.pages import DOCS, PAGES, blocks, name_of, sentences, words

# A path in backticks, with the number of a line or the name of a test behind it. Paths that begin with / or ~, and those with a
# scheme or placeholders, are of files elsewhere; files in results/ are written by runs.
PATH = re.compile(r"`((?!results/)\w[\w.-]*(?:/[\w.-]+)+\.(?:py|md|yaml|toml|json|tsv|sql|png|service|txt))(?:[:#][^`]*)?`")
FOLDERS = (ROOT, ROOT / "tests" / "unit")  # docs/experiments/faults.md names unit tests without their tier.
MAX_WORDS = {
    "README.md": 700,
    "docs/fit.md": 800,
    "docs/quickstart.md": 800,
    "docs/concepts.md": 1500,
    "docs/operate.md": 2500,
    "docs/network.md": 800,
    "docs/bonds.md": 400,
    "docs/doctor.md": 500,
    "docs/fabric-sources.md": 500,
    "docs/network-policies.md": 2000,
    "docs/gpu-policies.md": 2000,
    "docs/architecture.md": 2500,
    "docs/extending.md": 1500,
    "docs/faq.md": 1000,
    "docs/see-and-end.md": 600,
    "docs/experiments/nvidia.md": 500,
    "docs/tuners/command.md": 2550,
    "docs/tuners/gpus.md": 450,
    "docs/tuners/warm-starts.md": 480,
    "docs/tuners/ray-tune.md": 1800,
    "docs/tuners/ray-tune-callback.md": 300,
    "docs/tuners/python.md": 1800,
    "docs/tuners/optuna.md": 300,
    "docs/tuners/samplers.md": 450,
    "docs/tuners/pytorch.md": 450,
    "docs/tuners/run.md": 300,
}
MAX_DECISION_WORDS = 300
READ_FIRST = ("README.md", "docs/fit.md", "docs/quickstart.md", "docs/concepts.md")
MAX_SENTENCE_WORDS = 40
CHECKED = ("sh", "bash", "console", "shell", "python")
WHERE = re.compile(r"here|long|tests/[\w/]+\.py")
# The makers of these commands say when they are run: with every change, or by hand before a release.
BY_HAND = ("CONTRIBUTING.md",)


def missing(page: str) -> list[str]:
    """Return the paths of the tree that a page names and that are not there."""
    return [path for path in PATH.findall(page) if not any((folder / path).exists() for folder in FOLDERS)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text("utf-8")) == []


def test_a_file_that_is_gone_is_found_and_one_elsewhere_is_not_looked_for() -> None:
    page = "`beamer/cli.py`, `beamer/gone.py:12`, `test_cli.py`, `eval/gone.py::test_x`, `results/a.json`, `/etc/a.yaml`"
    assert missing(page) == ["beamer/gone.py", "eval/gone.py"]


def test_most_pages_name_files() -> None:
    assert sum(len(PATH.findall(page.read_text("utf-8"))) for page in PAGES) > 200


@pytest.mark.parametrize("name", MAX_WORDS)
def test_pages_are_as_short_as_was_set(name: str) -> None:
    assert 30 < words((ROOT / name).read_text("utf-8")) <= MAX_WORDS[name]


def test_decisions_are_short() -> None:
    long = {name_of(page): words(page.read_text("utf-8")) for page in (DOCS / "decisions").glob("*.md")}
    assert len(long) > 5
    assert not {name: count for name, count in long.items() if count > MAX_DECISION_WORDS}


@pytest.mark.parametrize("name", READ_FIRST)
def test_sentences_are_short(name: str) -> None:
    found = list(sentences((ROOT / name).read_text("utf-8")))
    assert len(found) > 10
    assert not [one for one in found if len(one.split()) > MAX_SENTENCE_WORDS]


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) not in BY_HAND], ids=name_of)
def test_each_block_of_code_says_how_it_is_checked(page: Path) -> None:
    for block in blocks(page.read_text("utf-8")):
        if block.language not in CHECKED:
            continue
        at = f"{name_of(page)}:{block.line}"
        assert block.kind, f"{at}: say above it how it is run, or why not"
        if block.kind == "run":
            assert WHERE.fullmatch(block.how), at
            assert not block.how.startswith("tests/") or (ROOT / block.how).is_file(), at
        else:
            assert len(block.how.split()) >= 3, f"{at}: give a reason"


def test_words_sentences_and_blocks_of_a_page() -> None:
    page = """# One

Two words. Here is `a.b c` and [a link](x.md).

| a | table |

<!-- run: here -->
```sh
beamer --help
```

- An entry
  goes on

```text
not counted
```

```{toctree}
x
```

<!-- run: long -->
```python
pass
```
"""
    assert words(page) == 16
    assert list(sentences(page)) == ["Two words.", "Here is `a.b c` and a link.", "- An entry goes on"]
    assert [(one.language, one.kind, one.how, one.line) for one in blocks(page)] == [
        ("sh", "run", "here", 8),
        ("text", "", "", 15),
        ("{toctree}", "", "", 19),
        ("python", "run", "long", 24),
    ]
