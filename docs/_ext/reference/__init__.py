"""Sphinx extension: writes the pages of the reference from the code, before Sphinx reads its sources.

Each module beside this one makes one page. A page whose text has not changed is left as it is, so that it is not read again.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from reference import codepoints, commands, events, files, http_api, metrics, policies, settings
from reference.docstrings import process_docstring, process_signature

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGES: dict[str, Callable[[], str]] = {
    "commands": commands.page,
    "files": files.page,
    "http": http_api.page,
    "settings": settings.page,
    "policies": policies.page,
    "events": events.page,
    "metrics": metrics.page,
    "codepoints": codepoints.page,
}
FOLDER = Path("reference", "generated")


def write(app: "Sphinx") -> None:
    """Write every page below the sources; pages are committed, so that links to them lead somewhere without the site, too."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = folder / f"{name}.md", page()
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def setup(app: "Sphinx") -> dict[str, bool]:
    """Have the pages written before sources are read, and docstrings of the Python API read as they are written here."""
    app.connect("builder-inited", write)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", process_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
