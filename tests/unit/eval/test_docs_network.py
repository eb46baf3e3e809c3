"""What docs/experiments/network.md says in words, and its pictures; its tables are held elsewhere."""

import pytest

from eval.network.command import NETWORK
from eval.network.report import Study


@pytest.fixture(scope="module")
def study() -> Study:
    return NETWORK.committed.read()


def test_no_live_policy_of_the_literature_is_better_beyond_chance_in_any_cell(study: Study) -> None:
    """The docs say so in words."""
    live = [contender for contender in study.config.contenders if contender.is_live and not contender.survivors]
    names = [contender.name for contender in live if not contender.policy.startswith("beamer")]
    for group in study.config.groups.values():
        for cell in study.known(list(group.cells)):
            assert not [name for name in names if study.ratio(cell, name, study.config.reference).high < 1], cell
