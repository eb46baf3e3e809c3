"""Settings of Sphinx for the documentation: `make docs`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent / "_ext")]

project = "Beamer"
author = "the authors of Beamer"
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "reference"]
exclude_patterns = ["_build", "_ext"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = False

html_theme = "furo"
html_title = "Beamer"
html_static_path = ["_static"]
html_css_files = ["beamer.css"]
html_copy_source = False
smartquotes = False  # Two hyphens begin an option.

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
myst_number_code_blocks: list[str] = []

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_mock_imports = ["optuna", "ray"]
autodoc_preserve_defaults = True
default_role = "code"
