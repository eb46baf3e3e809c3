"""What a trainer imports, and what every command line does, needs the standard library alone."""

import sys

import pytest

from tests.packaging.builds import ROOT, checked

LIST_NEW = "import sys; before = set(sys.modules); import {}; print(*(set(sys.modules) - before))"


@pytest.mark.parametrize(
    "module",
    [
        *("beamer.client", "beamer.integrations", "beamer.studies.model", "beamer.errors"),
        *("beamer.cli", "controller.cli", "hostagent.cli"),
    ],
)
def test_nothing_but_the_standard_library_is_imported(module: str) -> None:
    loaded = set(checked([sys.executable, "-c", LIST_NEW.format(module)], cwd=ROOT).split())
    assert module in loaded
    assert {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) == {"beamer", module.partition(".")[0]}
