"""Where the checkout is, for tests that read its files or start programs of it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
