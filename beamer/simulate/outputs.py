"""What `beamer simulate` may write."""

from pathlib import Path

ROWS = ("stages", "jobs")
"""What a table of a scenario may have a row for."""
Outputs = dict[str, Path | None]
"""The files that were asked for, by option; None: not asked for."""
