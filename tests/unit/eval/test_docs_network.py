"""What docs/experiments/network.md says in words; its tables and pictures are held elsewhere."""

import re

import pytest

from eval.network.cells import FAIR
from eval.network.command import NETWORK
from eval.network.report import Study

ROW = re.compile(r"^\| (?P<what>[^|]*\S) \| (?P<mixed>[\d.]+)[^|]* \| (?P<homogeneous>[\d.]+)[^|]* \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def study() -> Study:
    return NETWORK.committed.read()


def test_the_answer_in_short_follows_from_the_figures(study: Study) -> None:
    answer = NETWORK.committed.path.read_text().partition("### How it was measured")[0]
    shown = {match["what"]: (match["mixed"], match["homogeneous"]) for match in ROW.finditer(answer)}
    ours = study.config.reference
    cells = {name: study.known(list(group.cells)) for name, group in study.config.groups.items()}

    def means(name: str, base: str, measure: str = "mean_s") -> tuple[str, ...]:
        return tuple(f"{study.overall(cells[group], name, base, measure):.2f}" for group in ("mixed", "homogeneous"))

    best, sebf = means("lcf", ours), means("sebf", ours)
    assert shown == {
        "mean SCT of `fair` / `beamer`": means(FAIR, ours),
        "best policy of the literature / `beamer`": (best[0], min(best[1], sebf[1])),
        "worst policy / `beamer`": means("fifo", ours),
        "95th percentile of SCTs, `beamer` / `fair`": means(ours, FAIR, "p95_s"),
        "largest stretch, `beamer` / `fair`": means(ours, FAIR, "stretch"),
    }


def test_no_live_policy_of_the_literature_is_better_beyond_chance_in_any_cell(study: Study) -> None:
    """The docs say so in words."""
    live = [contender for contender in study.config.contenders if contender.is_live and not contender.survivors]
    names = [contender.name for contender in live if not contender.policy.startswith("beamer")]
    for group in study.config.groups.values():
        for cell in study.known(list(group.cells)):
            assert not [name for name in names if study.ratio(cell, name, study.config.reference).high < 1], cell
